"""The end of a transaction: its request is answered once, its markers are noted."""

from collections.abc import Callable

import pytest

from kohort.broker.core.transaction.effects import EndCause, Mark, Reply
from kohort.broker.core.transaction.ending import Fencing, TransactionEnd
from kohort.broker.core.transaction.requests import (
    EndResult,
    InitRequest,
    InitResult,
    TopicPartition,
)
from kohort.protocol.errors import ErrorCode
from tests.support.transactions.driven_id import ORDERS, OTHER, S, stored

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("error", "is_settled"),
    [
        (ErrorCode.NONE, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.INVALID_PRODUCER_EPOCH, True),
        (ErrorCode.TRANSACTION_COORDINATOR_FENCED, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, False),
    ],
)
def test_a_marker_is_missing_until_its_partition_has_one_or_is_gone(
    error: ErrorCode, is_settled: bool
) -> None:
    record = stored(S.PREPARE_COMMIT, partitions=(A, B))
    end = TransactionEnd(EndCause.START)
    end.decide(record)
    awaiting = [end.is_awaiting]
    assert end.mark(record, is_answered=False) == Mark(record, (A, B))
    for partition, outcome in ((A, error), (B, ErrorCode.NONE)):
        awaiting.append(end.is_awaiting)
        end.on_marked(record, partition, outcome)
    assert [*awaiting, end.is_awaiting] == [False, True, True, False]
    assert end.unmarked == (() if is_settled else (A,))


TICKET = object()
RECORD = stored(S.PREPARE_COMMIT, partitions=(ORDERS, OTHER))
ENDED = Reply(TICKET, EndResult(ErrorCode.NONE, *RECORD.next_producer))
TRY_AGAIN = Reply(TICKET, InitResult(ErrorCode.CONCURRENT_TRANSACTIONS))
FAILED = Reply(TICKET, InitResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
FENCING = Fencing(InitRequest(1_000), TICKET)


def of_client() -> TransactionEnd:
    return TransactionEnd(EndCause.CLIENT, TICKET)


def of_fence() -> TransactionEnd:
    return TransactionEnd(EndCause.FENCE, fencing=FENCING)


def of_broker() -> TransactionEnd:
    return TransactionEnd(EndCause.TIMEOUT)


@pytest.mark.parametrize(
    ("end", "client", "fencing", "either", "failure"),
    [
        (of_client, ENDED, None, ENDED, FAILED),
        (of_fence, None, TRY_AGAIN, TRY_AGAIN, FAILED),
        (of_broker, None, None, None, None),
    ],
)
def test_the_request_is_answered_once(
    end: Callable[[], TransactionEnd],
    client: Reply | None,
    fencing: Reply | None,
    either: Reply | None,
    failure: Reply | None,
) -> None:
    one = end()
    assert (one.answer_client(RECORD), one.answer_fencing()) == (client, fencing)
    assert one.answer_either(RECORD) is None
    one = end()
    assert one.answer_either(RECORD) == either
    assert one.answer_failure(ErrorCode.COORDINATOR_NOT_AVAILABLE) is None
    one = end()
    assert one.answer_failure(ErrorCode.COORDINATOR_NOT_AVAILABLE) == failure
    assert one.take_fencing() is None


def test_a_fencing_request_that_waits_is_executed_and_not_answered() -> None:
    end = of_fence()
    assert end.take_fencing() == FENCING
    assert (end.take_fencing(), end.answer_fencing()) == (None, None)
