"""EndTxn in every state, by every producer, in both flows; and how a transaction ends."""

import pytest

from kohort.broker.core.transaction.effects import EndCause, Ended, Stuck, Superseded
from kohort.broker.core.transaction.requests import ClientVersion
from kohort.broker.core.transaction.states import TransactionState
from kohort.protocol.errors import ErrorCode
from tests.support.transactions.driven_id import (
    ABORT,
    COMMIT,
    FRESH,
    ORDERS,
    OTHER,
    PID,
    STORED,
    V1,
    V2,
    Driven,
    S,
    failed,
    given,
    pending,
    stored,
)

WRONG = failed(ErrorCode.INVALID_TXN_STATE)
FENCED = failed(ErrorCode.PRODUCER_FENCED)
BUSY = failed(ErrorCode.CONCURRENT_TRANSACTIONS)
UNMAPPED = failed(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
SAME = given(PID, 7)
NEXT = given(PID, 8)
PREPARES = {COMMIT: S.PREPARE_COMMIT, ABORT: S.PREPARE_ABORT}
COMPLETES = {COMMIT: S.COMPLETE_COMMIT, ABORT: S.COMPLETE_ABORT}


@pytest.mark.parametrize("made_by", [V1, V2])
@pytest.mark.parametrize(
    ("state", "commit_current", "commit_retry", "abort_current", "abort_retry"),
    [
        (S.EMPTY, WRONG, FENCED, NEXT, FENCED),
        (S.ONGOING, NEXT, FENCED, NEXT, FENCED),
        (S.PREPARE_COMMIT, BUSY, BUSY, BUSY, BUSY),
        (S.PREPARE_ABORT, BUSY, BUSY, BUSY, BUSY),
        (S.COMPLETE_COMMIT, WRONG, SAME, NEXT, WRONG),
        (S.COMPLETE_ABORT, WRONG, WRONG, NEXT, SAME),
    ],
)
def test_version_five(
    state: TransactionState,
    commit_current: object,
    commit_retry: object,
    abort_current: object,
    abort_retry: object,
    made_by: ClientVersion,
) -> None:
    for result, epoch, expected in (
        (COMMIT, 7, commit_current),
        (COMMIT, 6, commit_retry),
        (ABORT, 7, abort_current),
        (ABORT, 6, abort_retry),
    ):
        driven = Driven(stored(state, client_version=made_by))
        assert driven.end(result, epoch=epoch) == expected
        if expected == NEXT:
            assert driven.states == [PREPARES[result], COMPLETES[result]]
            assert driven.marked == ([(ORDERS, result, 8)] if state is S.ONGOING else [])
            assert (driven.producer, driven.core.last_epoch) == ((PID, 8), 7)
            assert driven.record.client_version is V2
        else:
            assert driven.log == []


@pytest.mark.parametrize("state", STORED)
def test_a_pending_transition_comes_first_in_version_five_only(state: TransactionState) -> None:
    for producer_id, epoch, old in [
        (PID, 7, BUSY),
        (99, 7, UNMAPPED),
        (PID, 8, FENCED),
    ]:
        driven = pending(state)
        assert driven.end(COMMIT, producer_id=producer_id, epoch=epoch, version=V1) == old
        assert driven.end(COMMIT, producer_id=producer_id, epoch=epoch, version=V2) == BUSY


@pytest.mark.parametrize("state", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_an_abort_of_nothing_starts_now(state: TransactionState) -> None:
    driven = Driven(stored(state))
    driven.end(ABORT)
    first, last = driven.log
    assert first == stored(
        S.PREPARE_ABORT, 8, partitions=(), start_ms=driven.now, last_update_ms=driven.now
    )
    assert last == stored(S.COMPLETE_ABORT, 8, start_ms=driven.now, last_update_ms=driven.now)


# Epochs that are exhausted.


def test_the_last_epoch_ends_with_another_producer_id() -> None:
    driven = Driven(stored(S.ONGOING, 32_766))
    assert driven.end(COMMIT, epoch=32_766) == given(FRESH, 0)
    first, last = driven.log
    assert first == stored(
        S.PREPARE_COMMIT, 32_767, next_producer_id=FRESH, last_update_ms=driven.now
    )
    assert last == stored(
        S.COMPLETE_COMMIT,
        0,
        producer_id=FRESH,
        previous_producer_id=PID,
        last_update_ms=driven.now,
    )
    assert driven.marked == [(ORDERS, COMMIT, 32_767)]
    assert driven.end(COMMIT, epoch=32_766) == given(FRESH, 0)
    assert driven.end(ABORT, epoch=32_766) == WRONG
    assert driven.end(COMMIT, epoch=32_765) == UNMAPPED
    assert driven.init(PID, 32_766) == given(FRESH, 0)


def test_up_to_version_four_the_last_epoch_stays() -> None:
    driven = Driven(stored(S.ONGOING, 32_766))
    assert driven.end(COMMIT, epoch=32_766, version=V1) == given(PID, 32_766)
    assert driven.marked == [(ORDERS, COMMIT, 32_766)]
    assert driven.init(PID, 32_766) == given(FRESH, 0)


def test_an_abort_at_the_epoch_of_a_marker_rotates() -> None:
    # Brokers before KIP-890 left ids at 32767 after a fence.
    driven = Driven(stored(S.COMPLETE_ABORT, 32_767))
    assert driven.end(ABORT, epoch=32_767) == given(FRESH, 0)


# Markers.


def test_no_marker_before_the_decision_is_durable_and_no_end_before_the_markers() -> None:
    driven = Driven(stored(S.ONGOING))
    driven.holds_appends = True
    assert driven.end(COMMIT) is None
    assert (driven.state, driven.marked) == (S.ONGOING, [])
    driven.release()
    assert (driven.state, driven.marked) == (S.PREPARE_COMMIT, [(ORDERS, COMMIT, 8)])
    # Complete* may take its time: nothing that a client could see depends on it.
    assert driven.replies[0] == NEXT
    assert driven.add(OTHER, epoch=8) is ErrorCode.CONCURRENT_TRANSACTIONS
    driven.release()
    assert driven.state is S.COMPLETE_COMMIT


def test_a_decision_that_cannot_be_written_is_none() -> None:
    driven = Driven(stored(S.ONGOING))
    driven.holds_appends = True
    driven.end(COMMIT)
    driven.fail()
    assert driven.replies[0] == failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert (driven.state, driven.core.is_pending, driven.marked) == (S.ONGOING, False, [])
    driven.holds_appends = False
    assert driven.end(ABORT) == NEXT
    assert driven.marked == [(ORDERS, ABORT, 8)]


@pytest.mark.parametrize(
    "error", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED]
)
def test_a_superseded_marker_does_not_leave_the_id_stuck(error: ErrorCode) -> None:
    driven = Driven(stored(S.ONGOING, partitions=(ORDERS, OTHER)))
    driven.marker_errors[ORDERS] = error
    assert driven.end(COMMIT) == NEXT
    assert driven.state is S.COMPLETE_COMMIT
    told = driven.events[0]
    assert isinstance(told, Superseded)
    assert (told.partition, told.error) == (ORDERS, error)


def test_an_offline_partition_keeps_the_id_prepared_and_the_client_is_answered() -> None:
    driven = Driven(stored(S.ONGOING, partitions=(ORDERS, OTHER)))
    driven.marker_errors[ORDERS] = ErrorCode.KAFKA_STORAGE_ERROR
    assert driven.end(COMMIT) == NEXT
    assert driven.state is S.PREPARE_COMMIT
    assert driven.events == [Stuck((ORDERS,))]
    assert list(driven.core.unmarked) == [ORDERS]
    assert driven.end(COMMIT) == BUSY
    assert driven.init() == BUSY
    driven.core.retry(driven.now)
    driven.carry_out()
    assert driven.events == [Stuck((ORDERS,))] * 2
    driven.marker_errors.clear()
    driven.core.retry(driven.now)
    driven.carry_out()
    assert driven.states[-1] is S.COMPLETE_COMMIT
    assert driven.marked == [(OTHER, COMMIT, 8), (ORDERS, COMMIT, 8)]
    assert driven.end(COMMIT) == NEXT
    assert isinstance(driven.events[-1], Ended)
    assert driven.events[-1].cause is EndCause.CLIENT


def test_an_end_that_cannot_be_written_is_tried_again() -> None:
    driven = Driven(stored(S.ONGOING))
    driven.holds_appends = True
    driven.end(COMMIT)
    driven.release()
    driven.fail()
    assert driven.state is S.PREPARE_COMMIT
    assert driven.events == [Stuck(())]
    driven.core.retry(driven.now)
    driven.carry_out()
    driven.release()
    assert driven.states[-1] is S.COMPLETE_COMMIT
    assert len(driven.marked) == 1


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
@pytest.mark.parametrize("partitions", [(), (ORDERS,), (ORDERS, OTHER)])
def test_what_was_decided_is_completed_after_a_start(
    state: TransactionState, partitions: tuple[object, ...]
) -> None:
    driven = Driven(stored(state, partitions=partitions))
    driven.core.complete(driven.now)
    driven.carry_out()
    assert [partition for partition, *_ in driven.marked] == list(partitions)
    assert driven.state is (S.COMPLETE_COMMIT if state is S.PREPARE_COMMIT else S.COMPLETE_ABORT)
    assert driven.events == [Ended(stored(state, partitions=partitions), EndCause.START)]


@pytest.mark.parametrize("state", [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
def test_what_is_undecided_is_left_alone_by_a_start(state: TransactionState) -> None:
    driven = Driven(stored(state))
    driven.core.complete(driven.now)
    driven.core.retry(driven.now)
    driven.carry_out()
    assert driven.log == []
