"""Acknowledgements: which are accepted, and what they do."""

import pytest

from kohort.groups.share.states import RecordState, StateBatch
from kohort.groups.share.window import AcknowledgementError, Window, WindowSettings, are_valid
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.share_acknowledge import AcknowledgementBatch
from tests.unit.groups.share.windows import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    acknowledge,
    acquire,
    batch,
    log,
    store,
)

FURTHEST = 2**63 - 1


def window_of(*batches: int, limit: int = 5) -> Window:
    """Return a window whose records are acquired, each batch as a range."""
    window = Window(WindowSettings(delivery_count_limit=limit), 0)
    acquire(window, log(*batches), batch_size=1)
    return window


def message(error: AcknowledgementError | None) -> str:
    assert error is not None
    assert error.code is ErrorCode.INVALID_RECORD_STATE
    assert error.message is not None
    return error.message


@pytest.mark.parametrize(
    ("batches", "valid"),
    [
        ([batch(0, 9, ACCEPT)], True),
        ([batch(0, 1, ACCEPT, REJECT)], True),
        ([batch(0, 1, ACCEPT), batch(1, 2, ACCEPT)], True),
        ([batch(-1, 1, ACCEPT)], True),
        ([batch(0, FURTHEST, ACCEPT)], True),
        ([batch(0, 1, GAP, RENEW)], True),
        ([batch(1, 0, ACCEPT)], False),
        ([batch(-2, 0, ACCEPT)], False),
        ([batch(0, 2, ACCEPT), batch(1, 3, ACCEPT)], False),
        ([batch(5, 6, ACCEPT), batch(0, 1, ACCEPT)], False),
        ([batch(0, 1)], False),
        ([batch(0, 2, ACCEPT, ACCEPT)], False),
        ([batch(0, FURTHEST, ACCEPT, ACCEPT)], False),
        ([batch(0, 0, ACCEPT, ACCEPT)], False),
        ([batch(0, 0, -1)], False),
        ([batch(0, 0, 5)], False),
    ],
)
def test_acknowledgements_are_checked_without_the_window(
    batches: list[AcknowledgementBatch], valid: bool
) -> None:
    assert are_valid(batches, may_renew=True, highest_type=4) is valid


def test_only_requests_that_renew_have_renewals() -> None:
    assert not are_valid([batch(0, 0, RENEW)], may_renew=False, highest_type=4)
    assert not are_valid([batch(0, 0, RENEW)], may_renew=True, highest_type=3)


def test_single_batches_beyond_the_window_fail_by_themselves() -> None:
    """Batches of a record each are joined, except to find the error."""
    window = window_of(3)
    batches = [batch(offset, offset, ACCEPT) for offset in range(5)]
    error = window.acknowledge("a", 0, batches)
    assert error is not None
    assert error.message is not None
    assert "The first offset" in error.message
    assert window.take_write() is None


def test_records_that_are_being_written_are_refused() -> None:
    window = window_of(3)
    window.acknowledge("a", 0, [batch(0, 2, RELEASE)])
    text = "The record state is invalid. The acknowledgement of delivery could not be completed."
    assert message(window.acknowledge("a", 0, [batch(1, 1, ACCEPT)])) == text
    assert message(window.acknowledge("b", 0, [batch(1, 1, ACCEPT)])) == text


@pytest.mark.parametrize("types_together", [False, True])
def test_records_of_which_every_second_is_released(*, types_together: bool) -> None:
    """One batch per record, or one batch with a type per record."""
    window = window_of(4, 6)
    types = [(ACCEPT, RELEASE)[offset % 2] for offset in range(2, 9)]
    batches = [batch(offset, offset, kind) for offset, kind in enumerate(types, 2)]
    if types_together:
        batches = [batch(2, 8, *types)]
    assert acknowledge(window, *batches, batch(11, 12, ACCEPT)) is not None
    assert store(window) is None
    assert [(part.first, part.last) for part in window.segments()] == [(0, 3), (4, 9)]
    assert acknowledge(window, *batches) is None
    assert window.stored_batches() == [
        StateBatch(offset, offset, state, 1)
        for offset, state in zip(
            range(2, 9), [RecordState.ACKNOWLEDGED, RecordState.AVAILABLE] * 4, strict=False
        )
    ]
    assert acquire(window, log(4, 6)) == [(3, 3, 2), (5, 5, 2), (7, 7, 2)]
