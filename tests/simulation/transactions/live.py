"""A broker that is at work, held against its own logs after every answer."""

from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.protocol.records.batch import split_batches
from tests.simulation.transactions.broker import Broker
from tests.simulation.transactions.logs import Batch, Partition

WATCHED = (("t", 0), ("t", 1), (CONSUMER_OFFSETS, 0))


class LiveLogs:
    """What was appended since the broker's start, and what follows from it (P3, P4)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._logs: dict[tuple[str, int], Partition] = {}
        self._positions: dict[tuple[str, int], int] = {}
        self._stable: dict[tuple[str, int], int] = {}
        for place in WATCHED:
            found = broker.topics.partition(*place)
            assert found is not None
            log = self._logs[place] = Partition()
            for one in found.log.producers.snapshot():
                log.take(one.producer_id, one.producer_epoch, one.current_transaction_first_offset)
            log.end = self._positions[place] = found.log.log_end_offset
            self._stable[place] = found.last_stable_offset

    def look(self, broker: Broker) -> None:
        """Take what is new, and compare; of another broker nothing is known."""
        if broker is not self._broker:
            return
        for place, log in self._logs.items():
            found = broker.topics.partition(*place)
            assert found is not None
            if found.failure is not None:
                continue
            position = self._positions[place]
            end = found.log.log_end_offset
            while position < end:
                data = found.log.read(position, 1 << 20, up_to_offset=end, min_one=True)
                for header, content in split_batches(data):
                    log.feed(Batch(header, bytes(content)))
                    position = header.next_offset
            self._positions[place] = position
            stable = found.last_stable_offset
            assert stable >= self._stable[place], f"stable offset of {found} went back"
            self._stable[place] = stable
            assert stable <= log.stable, f"{found}: undecided records are shown"
            if found.high_watermark == found.log.log_end_offset:
                assert stable == log.stable, f"{found}: {stable} is not {log.stable}"
