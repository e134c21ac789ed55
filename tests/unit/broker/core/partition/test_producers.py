import pytest

from kohort.broker.core.partition.producers import ProducerSnapshot, ProducerState
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.control import ControlType, EndTransactionMarker, make_marker
from tests.support.records.batches import sequenced
from tests.unit.broker.core.partition.lenient_log import Log

PRODUCER = 1_000
LAST = (1 << 31) - 1


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
