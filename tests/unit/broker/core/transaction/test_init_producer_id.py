"""InitProducerId with a transactional id: every condition, in every state."""

import pytest

from kohort.broker.core.transaction.requests import InitRequest, TransactionConfig
from kohort.broker.core.transaction.rules import check_init
from kohort.broker.core.transaction.states import TransactionState
from kohort.protocol.errors import ErrorCode
from tests.support.transactions.driven_id import (
    FRESH,
    ID,
    PID,
    STORED,
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

CONFIG = TransactionConfig(max_timeout_ms=900_000)
FENCED = failed(ErrorCode.PRODUCER_FENCED)
BUSY = failed(ErrorCode.CONCURRENT_TRANSACTIONS)
IDLE = [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]


@pytest.mark.parametrize(
    ("transactional_id", "timeout_ms", "producer_id", "epoch", "error"),
    [
        ("", 0, 5, -1, ErrorCode.INVALID_REQUEST),
        (None, 0, -1, 0, ErrorCode.INVALID_REQUEST),
        (ID, 1000, -1, 0, ErrorCode.INVALID_REQUEST),
        (ID, 1000, 5, -1, ErrorCode.INVALID_REQUEST),
        (None, 0, -1, -1, ErrorCode.NONE),
        (None, -5, 5, 5, ErrorCode.NONE),
        ("", 0, -1, -1, ErrorCode.INVALID_REQUEST),
        (ID, 0, -1, -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (ID, -1, -1, -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (ID, 900_001, -1, -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (ID, 900_000, -1, -1, ErrorCode.NONE),
        (ID, 1, -1, -1, ErrorCode.NONE),
        ("x" * 32_767, 1, -1, -1, ErrorCode.NONE),
        ("x" * 32_768, 1, -1, -1, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_is_refused_whatever_is_known_of_the_id(
    transactional_id: str | None, timeout_ms: int, producer_id: int, epoch: int, error: ErrorCode
) -> None:
    request = InitRequest(timeout_ms, producer_id, epoch)
    assert check_init(transactional_id, request, CONFIG) is error


@pytest.mark.parametrize("state", STORED)
@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, -1), (PID, 7), (PID, 6), (99, 7)])
def test_a_pending_transition_comes_before_all_else(
    state: TransactionState, producer_id: int, epoch: int
) -> None:
    assert pending(state).init(producer_id, epoch) == BUSY


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, -1), (PID, 7), (PID, 6), (PID, 9)])
def test_what_is_being_ended_is_waited_for(
    state: TransactionState, producer_id: int, epoch: int
) -> None:
    assert Driven(stored(state)).init(producer_id, epoch) == BUSY


@pytest.mark.parametrize("state", IDLE)
@pytest.mark.parametrize(
    ("epoch", "last_epoch", "sent", "answer", "last_epoch_after"),
    [
        # No epoch sent.
        (7, 6, None, given(PID, 8), -1),
        (32_765, -1, None, given(PID, 32_766), -1),
        (32_766, 32_765, None, given(FRESH, 0), -1),
        (32_767, 32_766, None, given(FRESH, 0), -1),
        # The present one.
        (7, 6, 7, given(PID, 8), 7),
        (0, -1, 0, given(PID, 1), 0),
        (32_765, -1, 32_765, given(PID, 32_766), 32_765),
        (32_766, -1, 32_766, given(FRESH, 0), 32_766),
        # The one before it.
        (7, 6, 6, given(PID, 7), 6),
        (7, 3, 3, given(PID, 7), 3),
        (32_766, 32_765, 32_765, given(PID, 32_766), 32_765),
        # Another one.
        (7, -1, 6, FENCED, -1),
        (7, 6, 5, FENCED, 6),
        (7, 6, 8, FENCED, 6),
        (32_766, -1, 32_765, FENCED, -1),
    ],
)
def test_the_next_epoch(
    state: TransactionState,
    epoch: int,
    last_epoch: int,
    sent: int | None,
    answer: object,
    last_epoch_after: int,
) -> None:
    driven = Driven(stored(state, epoch), last_epoch)
    assert (driven.init() if sent is None else driven.init(PID, sent, 1_234)) == answer
    assert driven.core.last_epoch == last_epoch_after
    if answer == FENCED:
        assert driven.log == []
        return
    assert driven.producer == tuple(answer)[1:]  # type: ignore[arg-type]
    assert driven.record == stored(
        S.EMPTY,
        driven.record.producer_epoch,
        producer_id=driven.record.producer_id,
        previous_producer_id=PID,
        timeout_ms=TIMEOUT_MS if sent is None else 1_234,
        last_update_ms=driven.now,
    )


@pytest.mark.parametrize("version", [V1, V2])
def test_the_version_of_the_client_stays(version: int) -> None:
    driven = Driven(stored(S.COMPLETE_COMMIT, client_version=version))
    driven.init()
    assert driven.record.client_version is version


def test_a_fence_that_cannot_be_written_leaves_all_as_it_was() -> None:
    driven = Driven(stored(S.ONGOING))
    driven.holds_appends = True
    assert driven.init() == BUSY
    driven.fail()
    assert (driven.state, driven.producer) == (S.ONGOING, (PID, 7))
    driven.holds_appends = False
    assert driven.init() == given(PID, 9)


def test_a_rotation_can_be_repeated_with_the_former_id() -> None:
    driven = Driven(stored(S.EMPTY, 32_766))
    assert driven.init(PID, 32_766) == given(FRESH, 0)
    assert driven.record.previous_producer_id == PID
    assert driven.init(PID, 32_766) == given(FRESH, 0)
    assert driven.init(PID, 32_765) == FENCED


def test_an_answer_that_could_not_be_written_is_to_be_asked_for_again() -> None:
    driven = Driven()
    driven.holds_appends = True
    assert driven.init() is None
    driven.fail()
    assert driven.replies[0] == failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert driven.core.is_gone
