import pytest

from kohort.broker.core.partition.producers import (
    BATCHES_REMEMBERED,
    ProducerSnapshot,
    ProducerState,
)
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.batch import BatchHeader, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType, EndTransactionMarker, make_marker
from kohort.protocol.records.record import Record
from tests.support.records.batches import sequenced

PRODUCER = 1_000
LAST = (1 << 31) - 1
DAY = 86_400_000


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


def test_batches_in_sequence_are_appended(log: Log) -> None:
    offsets = [log.send(sequenced(PRODUCER, 0, first, 3)) for first in (0, 3, 6)]
    assert offsets == [0, 3, 6]


def test_a_batch_sent_again_gets_the_offset_it_had_and_is_not_appended(log: Log) -> None:
    first = sequenced(PRODUCER, 0, 0, 3)
    log.send(first)
    log.send(sequenced(PRODUCER, 0, 3, 2))
    assert log.send(first) == 0
    assert log.end_offset == 5


def test_a_repetition_tells_where_the_batch_ends_and_when_it_came(log: Log) -> None:
    log.now_ms = 77
    log.send(sequenced(PRODUCER, 0, 0, 3))
    repeated = log.state.check(sequenced(PRODUCER, 0, 0, 3))
    assert repeated is not None
    assert (repeated.base_offset, repeated.last_offset, repeated.timestamp) == (0, 2, 77)


def test_each_of_the_last_five_batches_can_be_sent_again(log: Log) -> None:
    sent = [sequenced(PRODUCER, 0, first, 2) for first in range(0, 20, 2)]
    offsets = [log.send(header) for header in sent]
    assert BATCHES_REMEMBERED == 5
    assert [log.send(header) for header in sent[-5:]] == offsets[-5:]
    assert log.end_offset == 20


def test_a_repetition_older_than_the_last_five_is_out_of_order(log: Log) -> None:
    for first in range(6):
        log.send(sequenced(PRODUCER, 0, first))
    assert log.refuse(sequenced(PRODUCER, 0, 0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(("first", "count"), [(0, 2), (1, 2), (1, 3), (0, 4), (2, 2), (0, 1)])
def test_a_batch_that_overlaps_one_in_part_is_out_of_order(
    log: Log, first: int, count: int
) -> None:
    log.send(sequenced(PRODUCER, 0, 0, 3))
    header = sequenced(PRODUCER, 0, first, count)
    assert log.refuse(header) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_out_of_order(log: Log) -> None:
    log.send(sequenced(PRODUCER, 0, 0, 3))
    assert log.refuse(sequenced(PRODUCER, 0, 4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_lower_epoch_is_fenced_even_if_it_repeats_what_is_there(log: Log) -> None:
    old = sequenced(PRODUCER, 3, 0)
    log.send(old)
    log.send(sequenced(PRODUCER, 4, 0))
    assert log.refuse(old) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert log.refuse(sequenced(PRODUCER, 3, 1)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_higher_epoch_starts_at_sequence_zero(log: Log) -> None:
    log.send(sequenced(PRODUCER, 0, 0, 3))
    assert log.send(sequenced(PRODUCER, 1, 0)) == 3
    assert log.send(sequenced(PRODUCER, 1, 1)) == 4


def test_a_higher_epoch_that_starts_elsewhere_is_out_of_order(log: Log) -> None:
    log.send(sequenced(PRODUCER, 0, 0, 3))
    assert log.refuse(sequenced(PRODUCER, 1, 3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_forgets_the_batches_of_the_old_one(log: Log) -> None:
    log.send(sequenced(PRODUCER, 0, 0))
    log.send(sequenced(PRODUCER, 0, 1))
    log.send(sequenced(PRODUCER, 1, 0))
    assert log.send(sequenced(PRODUCER, 1, 1)) == 3
    assert log.send(sequenced(PRODUCER, 1, 0)) == 2


@pytest.mark.parametrize(("epoch", "first"), [(0, 0), (0, 500), (7, 0), (7, 500), (-1, 0)])
def test_an_unknown_producer_may_start_anywhere(log: Log, epoch: int, first: int) -> None:
    assert log.send(sequenced(PRODUCER, epoch, first)) == 0
    assert log.send(sequenced(PRODUCER, epoch, first)) == (0 if epoch >= 0 else 1)


def test_after_the_highest_sequence_comes_zero(log: Log) -> None:
    log.send(sequenced(PRODUCER, 0, LAST))
    assert log.send(sequenced(PRODUCER, 0, 0)) == 1
    assert log.send(sequenced(PRODUCER, 0, LAST)) == 0


def test_a_batch_may_straddle_the_wrap(log: Log) -> None:
    straddling = sequenced(PRODUCER, 0, LAST - 1, 4)
    log.send(straddling)
    assert log.send(sequenced(PRODUCER, 0, 2)) == 4
    assert log.send(straddling) == 0
    assert log.refuse(sequenced(PRODUCER, 0, 2, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producers_do_not_know_of_each_other(log: Log) -> None:
    log.send(sequenced(1, 5, 10))
    log.send(sequenced(2, 0, 99))
    assert log.send(sequenced(1, 5, 11)) == 2
    assert log.send(sequenced(2, 0, 100)) == 3


def test_a_producer_without_id_is_neither_checked_nor_remembered(log: Log) -> None:
    plain = read_header(encode_batch([Record(b"v")]))
    assert [log.send(plain), log.send(plain)] == [0, 1]
    assert len(log.state) == 0


def test_markers_are_not_batches_of_a_producer(log: Log) -> None:
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    batch = make_marker(marker, producer_id=PRODUCER, producer_epoch=0, timestamp=0)[0]
    log.state.note_appended(read_header(batch), base_offset=0, timestamp=0)
    assert log.state.get(PRODUCER) is None


def test_a_producer_is_forgotten_when_it_was_quiet_for_the_expiration_time(log: Log) -> None:
    log.send(sequenced(1, 0, 0))
    log.now_ms = 10
    log.send(sequenced(2, 0, 0))
    assert log.state.expire(DAY - 1, DAY) == 0
    assert log.state.expire(DAY, DAY) == 1
    assert log.state.get(1) is None
    assert log.send(sequenced(1, 0, 500)) == 2
    assert log.refuse(sequenced(2, 0, 500)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_append_keeps_a_producer_from_expiring(log: Log) -> None:
    log.send(sequenced(PRODUCER, 0, 0))
    log.now_ms = DAY - 1
    log.send(sequenced(PRODUCER, 0, 1))
    assert log.state.expire(DAY + 5, DAY) == 0


def test_a_snapshot_has_the_last_batch_of_each_producer(log: Log) -> None:
    log.send(sequenced(1, 0, 0, 2))
    log.now_ms = 50
    log.send(sequenced(1, 0, 2, 3))
    log.send(sequenced(2, 4, LAST, 2))
    assert log.state.snapshot() == [
        ProducerSnapshot(1, 0, 4, 4, 2, 50),
        ProducerSnapshot(2, 4, 0, 6, 1, 50),
    ]


def test_after_a_restore_producers_go_on_and_may_repeat_their_last_batch(log: Log) -> None:
    log.send(sequenced(1, 0, 0, 2))
    log.send(sequenced(1, 0, 2, 3))
    log.send(sequenced(2, 4, LAST, 2))
    state = ProducerState()
    state.note_appended(sequenced(3, 0, 0), base_offset=0, timestamp=0)
    state.restore(log.state.snapshot())
    restarted = Log(state)
    restarted.end_offset = log.end_offset
    assert state.get(3) is None
    assert restarted.send(sequenced(1, 0, 2, 3)) == 2
    assert restarted.send(sequenced(2, 4, LAST, 2)) == 5
    assert restarted.refuse(sequenced(1, 0, 0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert restarted.send(sequenced(1, 0, 5)) == 7
    assert restarted.send(sequenced(2, 4, 1)) == 8


def test_a_log_that_is_read_again_leads_to_the_same_state(log: Log) -> None:
    sent = [sequenced(1, 0, 0, 2), sequenced(2, 0, 7), sequenced(1, 0, 2), sequenced(1, 1, 0)]
    again = ProducerState()
    for header in sent:
        again.note_appended(header, base_offset=log.send(header), timestamp=0)
    assert again.snapshot() == log.state.snapshot()
    again.clear()
    assert len(again) == 0


def test_a_log_that_lost_its_beginning_is_read_without_complaint() -> None:
    state = ProducerState()
    state.note_appended(sequenced(1, 0, 900, 5), base_offset=100, timestamp=0)
    state.note_appended(sequenced(1, 0, 950, 5), base_offset=200, timestamp=0)
    assert Log(state).refuse(sequenced(1, 0, 905)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_of_too_many_producers_the_one_quiet_longest_is_forgotten() -> None:
    log = Log(ProducerState(producers_max=3))
    for producer_id in (1, 2, 3):
        log.send(sequenced(producer_id, 0, 0))
    log.send(sequenced(1, 0, 1))
    log.send(sequenced(4, 0, 0))
    assert len(log.state) == 3
    assert log.state.get(2) is None
    assert log.state.get(1) is not None
