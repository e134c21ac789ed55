"""Additions to a transaction, and whether a batch may be appended."""

import pytest

from kohort.broker.core.transaction.states import TransactionState
from kohort.protocol.errors import ErrorCode
from tests.support.transactions.driven_id import (
    ORDERS,
    OTHER,
    PID,
    STORED,
    Driven,
    S,
    pending,
    stored,
)

BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
UNMAPPED = ErrorCode.INVALID_PRODUCER_ID_MAPPING
FENCED = ErrorCode.PRODUCER_FENCED
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
NONE = ErrorCode.NONE
PREPARED = [S.PREPARE_COMMIT, S.PREPARE_ABORT]


@pytest.mark.parametrize("state", STORED)
def test_the_order_of_the_checks(state: TransactionState) -> None:
    right = BUSY if state in PREPARED else NONE
    for producer_id, epoch, expected in [
        (PID, 7, right),
        (PID, 6, FENCED),
        (PID, 8, FENCED),
        (99, 7, UNMAPPED),
        (99, 6, UNMAPPED),
    ]:
        driven = Driven(stored(state))
        assert driven.add(ORDERS, producer_id=producer_id, epoch=epoch) is expected
        assert pending(state).add(ORDERS, producer_id=producer_id, epoch=epoch) is BUSY


def test_an_addition_is_in_force_when_it_is_durable() -> None:
    driven = Driven(stored(S.EMPTY))
    driven.holds_appends = True
    assert driven.add(ORDERS) is None
    assert driven.state is S.EMPTY
    driven.release()
    assert driven.replies[0] is NONE
    assert driven.core.verify(PID, 7, [ORDERS], adds=False) is NONE


def test_an_addition_that_cannot_be_written_is_none() -> None:
    driven = Driven(stored(S.EMPTY))
    driven.holds_appends = True
    driven.add(ORDERS)
    driven.fail()
    assert driven.replies[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (driven.state, driven.core.is_pending) == (S.EMPTY, False)


# Produce and TxnOffsetCommit.


@pytest.mark.parametrize("state", STORED)
def test_what_a_batch_is_told(state: TransactionState) -> None:
    core = Driven(stored(state)).core
    is_prepared = state in PREPARED
    assert core.verify(PID, 7, [ORDERS], adds=True) is (BUSY if is_prepared else NONE)
    assert core.verify(PID, 7, [OTHER], adds=True) is (BUSY if is_prepared else NONE)
    is_in = NONE if state is S.ONGOING else ABORTABLE
    assert core.verify(PID, 7, [ORDERS], adds=False) is (BUSY if is_prepared else is_in)
    assert core.verify(PID, 7, [OTHER], adds=False) is (BUSY if is_prepared else ABORTABLE)
    assert core.verify(PID, 7, [ORDERS, OTHER], adds=False) is (BUSY if is_prepared else ABORTABLE)
    for adds in (True, False):
        assert core.verify(PID, 6, [ORDERS], adds=adds) is FENCED
        assert core.verify(PID, 8, [ORDERS], adds=adds) is FENCED
        assert core.verify(99, 7, [ORDERS], adds=adds) is UNMAPPED


@pytest.mark.parametrize("state", STORED)
def test_what_a_batch_is_told_while_something_is_written(state: TransactionState) -> None:
    core = pending(state).core
    # A wrong producer is told so only by the flow that adds nothing.
    assert core.verify(PID, 6, [OTHER], adds=True) is BUSY
    assert core.verify(99, 7, [OTHER], adds=True) is BUSY
    assert core.verify(PID, 6, [OTHER], adds=False) is FENCED
    assert core.verify(99, 7, [OTHER], adds=False) is UNMAPPED
    assert core.verify(PID, 7, [OTHER], adds=False) is BUSY
    # An addition on its way does not hold up what is in already.
    expected = NONE if state is S.ONGOING else BUSY
    assert core.verify(PID, 7, [ORDERS], adds=True) is expected
    assert core.verify(PID, 7, [ORDERS], adds=False) is expected


@pytest.mark.parametrize("state", STORED)
def test_a_look_without_an_addition(state: TransactionState) -> None:
    for core in (Driven(stored(state)).core, pending(state).core):
        right = BUSY if state in PREPARED else ABORTABLE
        assert core.verify_only(PID, 7, OTHER) is right
        assert core.verify_only(PID, 7, ORDERS) is (NONE if state is S.ONGOING else right)
        assert core.verify_only(PID, 6, ORDERS) is FENCED
        assert core.verify_only(99, 7, ORDERS) is UNMAPPED
