"""The end of a transaction: its request is answered once, its markers are noted."""

from collections.abc import Callable

import pytest

from kohort.broker.core.transaction.effects import EndCause, Reply
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
