import pytest

from kohort.broker.core.partition.producers import ProducerSnapshot, ProducerState
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.batch import BatchHeader, read_header
from kohort.protocol.records.control import ControlType, EndTransactionMarker, make_marker
from tests.support.records.batches import sequenced

PRODUCER = 1_000
LAST = (1 << 31) - 1


class Log:
    """A partition that appends whatever the rules let through."""

    def __init__(self, state: ProducerState | None = None) -> None:
        self.state = ProducerState() if state is None else state
        self.end_offset = 0
        self.now_ms = 0

    def send(self, header: BatchHeader) -> int:
        """The base offset that the producer is told."""
        duplicate = self.state.check(header)
        if duplicate is not None:
            return duplicate.base_offset
        base_offset = self.end_offset
        self.state.note_appended(header, base_offset=base_offset, timestamp=self.now_ms)
        self.end_offset += header.record_count
        return base_offset

    def refuse(self, header: BatchHeader) -> ErrorCode:
        """The code that the producer is told."""
        before = self.state.snapshot()
        with pytest.raises(KafkaError) as refusal:
            self.state.check(header)
        assert self.state.snapshot() == before
        return refusal.value.code


@pytest.fixture
def log() -> Log:
    return Log()


def test_markers_are_not_batches_of_a_producer(log: Log) -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    batch = make_marker(marker, producer_id=PRODUCER, producer_epoch=0, timestamp=0)[0]
    log.state.note_appended(read_header(batch), base_offset=0, timestamp=0)
    assert log.state.get(PRODUCER) is None


def test_a_snapshot_has_the_last_batch_of_each_producer(log: Log) -> None:
    log.send(sequenced(1, 0, 0, 2))
    log.now_ms = 50
    log.send(sequenced(1, 0, 2, 3))
    log.send(sequenced(2, 4, LAST, 2))
    assert log.state.snapshot() == [
        ProducerSnapshot(1, 0, 4, 4, 2, 50),
        ProducerSnapshot(2, 4, 0, 6, 1, 50),
    ]


def test_of_too_many_producers_the_one_quiet_longest_is_forgotten() -> None:
    log = Log(ProducerState(producers_max=3))
    for producer_id in (1, 2, 3):
        log.send(sequenced(producer_id, 0, 0))
    log.send(sequenced(1, 0, 1))
    log.send(sequenced(4, 0, 0))
    assert len(log.state) == 3
    assert log.state.get(2) is None
    assert log.state.get(1) is not None
