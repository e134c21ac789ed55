"""Transactions in one partition: what may be appended, what is open, up to where it is stable."""

import pytest

from kohort.broker.core.partition.producers import ProducerState, UnendedTransactionError
from kohort.broker.core.partition.transactions import TransactionSpans
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.records.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from tests.support.records.batches import sequenced
from tests.unit.broker.core.partition.lenient_log import Log

DAY = 86_400_000


def transactional(producer_id: int, epoch: int, first: int, count: int = 1) -> BatchHeader:
    return sequenced(producer_id, epoch, first, count)._replace(attributes=TRANSACTIONAL_BIT)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("epoch", [1, 2])
@pytest.mark.parametrize("has_sent", [True, False])
def test_where_a_marker_raised_the_epoch_sequences_begin_at_zero(
    log: Log, version: int, epoch: int, has_sent: bool
) -> None:
    """Seen on Kafka 4.4, with plain batches as well."""
    if has_sent:
        log.send(transactional(1, 0, 0, 3))
    log.mark(1, 1)
    for header in (transactional(1, epoch, 5), sequenced(1, epoch, 5)):
        refused = log.refuse(header, version=version)
        assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(transactional(1, epoch, 0), version=version) == log.end_offset - 1


def test_where_nothing_is_known_only_version_2_has_to_begin_at_zero(log: Log) -> None:
    refused = log.refuse(transactional(1, 0, 7), version=2)
    assert refused is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(transactional(1, 0, 7), version=0) == 0
    assert log.send(transactional(2, 0, 0), version=2) == 1


def test_a_transaction_never_spans_two_epochs(log: Log) -> None:
    log.send(transactional(1, 0, 0))
    with pytest.raises(UnendedTransactionError):
        log.state.check(transactional(1, 1, 0))
    assert log.refuse(transactional(1, 1, 0)) is ErrorCode.KAFKA_STORAGE_ERROR
    log.mark(1, 0, commit=False)
    assert log.send(transactional(1, 1, 0)) == 2


def test_an_ended_transaction_holds_until_its_marker_is_below_the_high_watermark(
    log: Log,
) -> None:
    log.send(transactional(1, 0, 0, 3))
    log.mark(1, 0)
    log.send(transactional(2, 0, 0))
    assert log.stable(high_watermark=2) == 0
    assert log.stable(high_watermark=3) == 0
    assert log.stable(high_watermark=4) == 4
    assert log.stable(high_watermark=5) == 4


def test_an_emptied_marker_raises_the_epoch_and_nothing_else(log: Log) -> None:
    log.send(transactional(1, 4, 0, 3))
    emptied = transactional(1, 4, -1)._replace(
        attributes=TRANSACTIONAL_BIT | CONTROL_BIT, record_count=0
    )
    log.state.note_emptied_marker(emptied, timestamp=0)
    assert log.send(transactional(1, 4, 3)) == 3
    log.state.note_emptied_marker(emptied._replace(producer_epoch=6), timestamp=0)
    assert log.refuse(transactional(1, 5, 0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    log.state.note_emptied_marker(emptied._replace(producer_id=2), timestamp=0)
    assert log.refuse(sequenced(2, 3, 0)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_producer_with_an_open_transaction_does_not_expire(log: Log) -> None:
    log.send(transactional(1, 0, 0))
    log.send(sequenced(2, 0, 0))
    assert log.state.expire(DAY, DAY) == 1
    assert log.state.get(1) is not None
    log.now_ms = DAY
    log.mark(1, 0)
    assert log.state.expire(2 * DAY - 1, DAY) == 0
    assert log.state.expire(2 * DAY, DAY) == 1


def test_of_too_many_producers_none_with_an_open_transaction_is_forgotten() -> None:
    log = Log()
    log.state = ProducerState(producers_max=3)
    log.send(transactional(1, 0, 0))
    for producer_id in range(2, 10):
        log.send(sequenced(producer_id, 0, 0))
    assert len(log.state) == 3
    assert [log.state.get(one) is not None for one in (1, 7, 8, 9)] == [True, False, True, True]
    for producer_id in range(20, 40):
        log.send(transactional(producer_id, 0, 0))
    assert len(log.state.open_transactions()) == 21
    assert len(log.state) == 21


def test_ten_thousand_open_transactions_cost_no_search() -> None:
    """Ending them in any order leaves the first of the others in front."""
    spans = TransactionSpans()
    for offset in range(10_000):
        spans.begin(offset, offset)
    for offset in range(9_999):
        assert spans.last_stable_offset(20_000 + offset, 0) == offset
        assert spans.end(offset, 20_000 + offset) == offset + 1
        spans.settle(20_001 + offset)
        assert not spans.ended


def test_what_the_broker_writes_for_a_producer_is_checked_by_its_epoch_alone() -> None:
    state = ProducerState()
    for offset, header in enumerate([transactional(7, 3, 0)] * 3):
        assert state.check(header, is_numbered=False) is None
        state.note_appended(header, base_offset=offset, timestamp=0)
    with pytest.raises(KafkaError) as fenced:
        state.check(transactional(7, 2, 0), is_numbered=False)
    assert fenced.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    with pytest.raises(UnendedTransactionError):
        state.check(transactional(7, 4, 0), is_numbered=False)
    state.note_marker(7, 4, is_commit=True, coordinator_epoch=0, offset=3, timestamp=0)
    assert state.check(transactional(7, 4, 0), is_numbered=False) is None
