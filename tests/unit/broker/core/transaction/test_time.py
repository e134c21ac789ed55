"""Transactions that take too long, and ids that are not used."""

import pytest

from kohort.broker.core.transaction.effects import EndCause, Ended
from kohort.broker.core.transaction.requests import ClientVersion
from kohort.broker.core.transaction.states import TransactionState
from kohort.protocol.errors import ErrorCode
from tests.support.transactions.driven_id import (
    ABORT,
    COMMIT,
    ORDERS,
    PID,
    STORED,
    T0,
    TIMEOUT_MS,
    V1,
    V2,
    Driven,
    S,
    failed,
    given,
    pending,
    stored,
)

DUE = T0 + TIMEOUT_MS + 1


def overdue(version: ClientVersion = V2) -> Driven:
    """After the timeout has aborted the transaction of epoch 7."""
    driven = Driven(stored(S.ONGOING, client_version=version))
    driven.now = DUE
    driven.core.abort_overdue(DUE)
    driven.carry_out()
    return driven


@pytest.mark.parametrize("version", [V1, V2])
def test_an_overdue_transaction_is_aborted_at_the_next_epoch(version: ClientVersion) -> None:
    driven = overdue(version)
    assert driven.states == [S.PREPARE_ABORT, S.COMPLETE_ABORT]
    assert driven.marked == [(ORDERS, ABORT, 8)]
    assert (driven.producer, driven.core.last_epoch) == ((PID, 8), 7)
    assert driven.record.client_version is V2
    (event,) = driven.events
    assert isinstance(event, Ended)
    assert event.cause is EndCause.TIMEOUT


@pytest.mark.parametrize("state", STORED)
def test_only_an_open_transaction_has_a_deadline(state: TransactionState) -> None:
    driven = Driven(stored(state))
    assert driven.core.deadline_ms == (DUE if state is S.ONGOING else None)
    if state is not S.ONGOING:
        driven.core.abort_overdue(DUE + 1_000_000)
        assert not driven.core.has_effects


def test_not_a_moment_too_early() -> None:
    driven = Driven(stored(S.ONGOING))
    driven.core.abort_overdue(DUE - 1)
    assert not driven.core.has_effects


def test_not_while_something_is_written() -> None:
    driven = pending(S.ONGOING)
    driven.core.abort_overdue(DUE)
    driven.release()
    assert driven.states == [S.ONGOING]


def test_two_phase_commit_is_never_overdue() -> None:
    driven = Driven(stored(S.ONGOING, timeout_ms=2_147_483_647))
    assert driven.core.deadline_ms is None
    driven.core.abort_overdue(T0 * 2)
    assert not driven.core.has_effects


def test_what_a_client_sees_after_a_timeout() -> None:
    fenced = failed(ErrorCode.PRODUCER_FENCED)
    for version, result, expected in [
        (V2, ABORT, given(PID, 8)),
        (V2, COMMIT, failed(ErrorCode.INVALID_TXN_STATE)),
        (V1, ABORT, fenced),
        (V1, COMMIT, fenced),
    ]:
        assert overdue().end(result, version=version) == expected
    assert overdue().init(PID, 7) == given(PID, 8)
    assert overdue().add(ORDERS) is ErrorCode.PRODUCER_FENCED


def test_while_the_tombstone_is_written_the_id_is_busy() -> None:
    driven = Driven(stored(S.EMPTY))
    driven.holds_appends = True
    driven.core.forget()
    driven.carry_out()
    assert driven.init() == failed(ErrorCode.CONCURRENT_TRANSACTIONS)
    driven.fail()
    assert driven.core.is_idle
    driven.holds_appends = False
    assert driven.init() == given(PID, 8)
