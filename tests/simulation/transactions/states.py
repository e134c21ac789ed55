"""A broker is started on a disk that a stop has left, and must agree with it in everything."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from kohort.broker.core.transaction.records import TransactionRecord
from kohort.broker.core.transaction.states import TransactionState
from kohort.broker.topics.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from kohort.broker.topics.partition import Partition as LivePartition
from kohort.groups.requests import TopicPartition
from kohort.testing.lasting_metadata import LastingMetadata
from kohort.testing.virtual_clock import VirtualClock
from tests.simulation.transactions.broker import ROOT, Broker, Disk, new_loop, settings
from tests.simulation.transactions.ledger import COMPACTED, Ledger
from tests.simulation.transactions.logs import Ids, Offsets, Partition, read_log
from tests.simulation.transactions.world import OWNERS, State
from tests.support.brokers.running_topics import aborted_in

COMPACTED_LOGS: Final = {COMPACTED, CONSUMER_OFFSETS, TRANSACTION_STATE}


class Examiner:
    """Starts brokers one after the other; each is killed when it has been looked at."""

    def __init__(self, *, is_forced: bool) -> None:
        self._is_forced = is_forced
        self._loaded = settings(is_forced=is_forced)
        self._clock = VirtualClock()
        self._loop = new_loop(self._clock, lambda: 0)
        self._store = LastingMetadata()
        self._examined: set[int] = set()
        self.count = 0
        """States that were looked at."""
        self.repeated_count = 0
        """States that were the same, byte by byte and fact by fact, as one before."""

    def examine(self, state: State, ledger: Ledger) -> None:
        fingerprint = hash((state.files.fingerprint(), state.known, state.has_lost_power))
        if fingerprint in self._examined:
            self.repeated_count += 1
            return
        self._examined.add(fingerprint)
        self.count += 1
        self.start_on(state, lambda broker: self.hold_against(broker, state, ledger))

    def start_on(self, state: State, work: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
        """Start a broker on a disk, do something with it, and kill it."""
        self._clock.jump_wall(state.wall_ms - self._clock.wall_ms())
        asyncio.set_event_loop(self._loop)
        store = self._store
        store._topics, store._properties = dict(state.topics), dict(state.properties)
        self._loop.run_until_complete(self._live(Disk(state.files, store), work))

    def close(self) -> None:
        self._loop.close()

    async def _live(self, disk: Disk, work: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
        broker = Broker(disk, self._loaded, self._clock)
        try:
            await broker.start()
            await work(broker)
        finally:
            await broker.end()

    async def hold_against(self, broker: Broker, state: State, ledger: Ledger) -> None:
        """Compare what a broker has just started on."""
        logs = read_logs(broker)
        check_partitions(broker, logs)
        check_ids(broker, logs)
        check_agreement(broker, logs)
        check_groups(broker, logs)
        view = {
            place: log.committed() for place, log in logs.items() if place.topic in {"t", "c", "d"}
        }
        positions = Offsets(logs[TopicPartition(CONSUMER_OFFSETS, 0)]).committed
        if self._is_forced or not state.has_lost_power:
            ledger.check(view, positions, state.known)


def read_logs(broker: Broker) -> dict[TopicPartition, Partition]:
    """Every partition of the disk, from its files."""
    found: dict[TopicPartition, Partition] = {}
    for partition in broker.topics.disk.opened():
        place = TopicPartition(partition.topic_name, partition.index)
        assert partition.failure is None, f"{place} is offline: {partition.failure}"
        directory = partition.log.directory
        found[place] = read_log(broker.disk.files, str(directory))
    assert str(ROOT)
    for name in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        found.setdefault(TopicPartition(name, 0), Partition())
    return found


def check_partitions(broker: Broker, logs: Mapping[TopicPartition, Partition]) -> None:
    """Producers, open transactions, stable offsets and the index are those of the log (P9, P10)."""
    for partition in broker.topics.disk.opened():
        place = TopicPartition(partition.topic_name, partition.index)
        log = logs[place]
        assert partition.log.log_end_offset == log.end, f"{place} ends at {log.end}"
        opened = {
            one.producer_id: (one.first_offset, one.producer_epoch)
            for one in partition.open_transactions()
        }
        assert opened == log.open(), f"{place}: open are {log.open()}, not {opened}"
        assert partition.last_stable_offset == log.stable, f"{place} is stable up to {log.stable}"
        if place.topic not in COMPACTED_LOGS and log.start == 0:
            _check_producers(partition, log)
            _check_aborted(partition, log)


def _check_producers(partition: LivePartition, log: Partition) -> None:
    known = {
        one.producer_id: (one.producer_epoch, one.last_sequence)
        for one in partition.producers_seen()
    }
    wanted = {pid: (one.epoch, one.last_sequence) for pid, one in log.producers.items()}
    assert known == wanted, f"{partition}: {known} are not {wanted}"


def _check_aborted(partition: LivePartition, log: Partition) -> None:
    """The list of every possible fetch, by its first and last batch."""
    offsets = sorted({log.end, *(batch.header.base_offset for batch in log.batches)})
    step = max(1, len(offsets) // 12)
    for start in offsets[::step]:
        for end in offsets[::step]:
            if start < end:
                found = aborted_in(partition, start, end)
                wanted = log.aborted(start, end)
                assert found == wanted, f"{partition} from {start} to {end}: {found}, not {wanted}"


def check_ids(broker: Broker, logs: Mapping[TopicPartition, Partition]) -> None:
    """Every id is what its last record says, and nothing is half done (P7, P9)."""
    ids = Ids(logs[TopicPartition(TRANSACTION_STATE, 0)].batches)
    host = broker.transactions.host
    known = {one.transactional_id: one.record for one in host.ids.all()}
    for name in known.keys() | ids.latest.keys():
        found, wanted = _in_order(known.get(name)), _in_order(ids.latest.get(name))
        assert found == wanted, f"{found} is not {wanted}"
    for one in host.ids.all():
        assert not one.is_busy
        assert one.record is not None
        assert not one.record.state.is_prepared, f"{one.record} is not completed"


def _in_order(record: TransactionRecord | None) -> TransactionRecord | None:
    """The log says partitions topic by topic."""
    return record and record._replace(partitions=tuple(sorted(record.partitions)))


def check_agreement(broker: Broker, logs: Mapping[TopicPartition, Partition]) -> None:
    """What is open in a partition is known to the coordinator, and nothing else (P12)."""
    by_producer: dict[int, Any] = {
        one.record.producer_id: one.record
        for one in broker.transactions.host.ids.all()
        if one.record is not None
    }
    for place, log in logs.items():
        for pid, (first, epoch) in log.open().items():
            record = by_producer.get(pid)
            what = f"{pid} is open in {place} from {first}, and the coordinator has {record}"
            assert record is not None, what
            assert record.state is TransactionState.ONGOING, what
            assert record.producer_epoch == epoch, what
            assert place in record.partitions, what


def check_groups(broker: Broker, logs: Mapping[TopicPartition, Partition]) -> None:
    """Positions are the fold of the groups' log (P8, P9)."""
    offsets = Offsets(logs[TopicPartition(CONSUMER_OFFSETS, 0)])
    found: dict[str, int] = {}
    unstable: set[str] = set()
    for owner in OWNERS:
        committed = broker.groups.committed(owner, "t", 0)
        if committed is not None:
            found[owner] = committed.offset
        group = broker.groups.host.group(owner)
        if group is not None and group.offsets.is_unstable("t", 0):
            unstable.add(owner)
    assert found == offsets.committed, f"positions {found} are not {offsets.committed}"
    assert unstable == offsets.unstable, f"unstable {unstable} are not {offsets.unstable}"
