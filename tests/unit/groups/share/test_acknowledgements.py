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


def test_types_finish_and_release_records() -> None:
    window = window_of(6)
    window.acknowledge("a", 0, [batch(0, 5, ACCEPT, ACCEPT, RELEASE, REJECT, GAP, ACCEPT)])
    assert store(window) == [(0, 1, 2, 1), (2, 2, 0, 1), (3, 4, 4, 1), (5, 5, 2, 1)]
    assert (window.start_offset, window.end_offset, window.delivery_complete_count) == (2, 5, 3)
    assert acquire(window, log(6)) == [(2, 2, 2)]


def test_the_start_moves_when_the_write_is_durable() -> None:
    window = window_of(4)
    window.acknowledge("a", 0, [batch(0, 1, ACCEPT), batch(2, 2, RELEASE)])
    write = window.take_write()
    assert write is not None
    assert (write.change.start_offset, write.change.delivery_complete_count) == (0, 2)
    assert (window.start_offset, window.position <= window.end_offset) == (0, False)
    assert acquire(window, log(4)) == []
    window.written(write)
    assert (window.start_offset, window.delivery_complete_count) == (2, 0)
    assert acquire(window, log(4)) == [(2, 2, 2)]


def test_a_finished_window_is_empty_behind_its_end() -> None:
    window = window_of(4)
    assert acknowledge(window, batch(0, 3, ACCEPT)) is None
    assert (window.start_offset, window.end_offset, window.is_idle) == (4, 3, True)


def test_acknowledgements_below_the_start_are_ignored() -> None:
    window = window_of(4)
    acknowledge(window, batch(0, 1, ACCEPT))
    assert window.acknowledge("a", 0, [batch(0, 1, REJECT)]) is None
    assert window.acknowledge("stranger", 0, [batch(-1, -1, REJECT)]) is None
    assert window.take_write() is None
    assert acknowledge(window, batch(0, 3, ACCEPT)) is None
    assert window.start_offset == 4


def test_types_of_offsets_below_the_start_are_skipped() -> None:
    window = window_of(4)
    acknowledge(window, batch(0, 1, ACCEPT))
    window.acknowledge("a", 0, [batch(0, 3, REJECT, REJECT, RELEASE, ACCEPT)])
    assert store(window) == [(2, 2, 0, 1), (3, 3, 2, 1)]


@pytest.mark.parametrize(
    ("first", "last", "which"),
    [(4, 4, "first"), (FURTHEST, FURTHEST, "first"), (0, 4, "last"), (-1, FURTHEST, "last")],
)
def test_offsets_beyond_the_window_are_an_invalid_request(
    first: int, last: int, which: str
) -> None:
    window = window_of(4)
    assert window.acknowledge("a", 0, [batch(first, last, ACCEPT)]) == (
        ErrorCode.INVALID_REQUEST,
        f"Batch record not found. The {which} offset in request is past acquired records.",
    )


def test_single_batches_beyond_the_window_fail_by_themselves() -> None:
    """Batches of a record each are joined, except to find the error."""
    window = window_of(3)
    batches = [batch(offset, offset, ACCEPT) for offset in range(5)]
    error = window.acknowledge("a", 0, batches)
    assert error is not None
    assert error.message is not None
    assert "The first offset" in error.message
    assert window.take_write() is None


def test_a_gap_of_the_log_is_passed_over_but_not_acknowledged_by_itself() -> None:
    window = window_of(2)
    acquire(window, log(2, first=5))
    singles = [batch(offset, offset, ACCEPT) for offset in range(7)]
    error = window.acknowledge("a", 0, singles)
    assert error is not None
    assert error.code is ErrorCode.INVALID_REQUEST
    assert acknowledge(window, batch(0, 6, ACCEPT)) is None
    assert window.start_offset == 7


@pytest.mark.parametrize("start", [0, 7])
def test_nothing_is_found_in_an_empty_window(start: int) -> None:
    window = Window(WindowSettings(), start)
    text = "Batch record not found. The request batch offsets are not found in the cache."
    assert message(window.acknowledge("a", 0, [batch(start, start + 3, ACCEPT)])) == text
    assert message(window.acknowledge("a", 0, [batch(-1, FURTHEST, ACCEPT)])) == text


def test_holes_of_a_restored_window_are_not_found() -> None:
    window = Window(WindowSettings(), 0, [StateBatch(4, 5, RecordState.AVAILABLE, 1)])
    text = "Batch record not found. The request batch offsets are not found in the cache."
    assert message(window.acknowledge("a", 0, [batch(0, 5, ACCEPT)])) == text
    acquire(window, log(9), max_records=20, batch_size=1)
    assert acknowledge(window, batch(0, 8, ACCEPT)) is None
    assert window.start_offset == 9


def test_a_released_range_is_not_acquired() -> None:
    window = window_of(3, 3)
    acknowledge(window, batch(3, 5, RELEASE))
    text = "The batch cannot be acknowledged. The batch is not in the acquired state."
    assert message(window.acknowledge("a", 0, [batch(3, 5, ACCEPT)])) == text
    assert message(window.acknowledge("a", 0, [batch(4, 4, ACCEPT)])) == text


def test_a_released_offset_is_not_acquired() -> None:
    window = window_of(3)
    acknowledge(window, batch(1, 1, RELEASE))
    text = "The offset cannot be acknowledged. The offset is not acquired."
    assert message(window.acknowledge("a", 0, [batch(0, 2, ACCEPT)])) == text
    assert message(window.acknowledge("b", 0, [batch(1, 1, ACCEPT)])) == text


@pytest.mark.parametrize(
    "batches",
    [
        [batch(0, 0, RELEASE), batch(1, 1, RELEASE), batch(2, 2, RELEASE)],
        [batch(0, 2, RELEASE, RELEASE, RELEASE)],
    ],
)
def test_a_range_that_was_acknowledged_in_parts_is_known_by_offset(
    batches: list[AcknowledgementBatch],
) -> None:
    window = window_of(3)
    acknowledge(window, *batches)
    text = "The offset cannot be acknowledged. The offset is not acquired."
    assert message(window.acknowledge("a", 0, [batch(0, 2, ACCEPT)])) == text


def test_a_range_that_was_acquired_in_parts_is_known_by_offset() -> None:
    window = window_of(3)
    acknowledge(window, batch(0, 2, RELEASE))
    acquire(window, log(3), max_records=2, record_limit=True)
    error = window.acknowledge("b", 0, [batch(0, 1, ACCEPT)])
    assert message(error) == "Member is not the owner of offset"


def test_ranges_that_are_acknowledged_one_by_one_stay_whole() -> None:
    window = window_of(1, 1, 1)
    acknowledge(window, batch(0, 0, RELEASE), batch(1, 1, RELEASE), batch(2, 2, RELEASE))
    text = "The batch cannot be acknowledged. The batch is not in the acquired state."
    assert message(window.acknowledge("a", 0, [batch(1, 1, ACCEPT)])) == text


def test_records_of_another_member_are_refused() -> None:
    window = window_of(3)
    error = window.acknowledge("b", 0, [batch(0, 2, ACCEPT)])
    assert message(error) == "Member is not the owner of batch record"
    acknowledge(window, batch(0, 0, RELEASE))
    error = window.acknowledge("b", 0, [batch(1, 1, ACCEPT)])
    assert message(error) == "Member is not the owner of offset"


def test_records_that_are_being_written_are_refused() -> None:
    window = window_of(3)
    window.acknowledge("a", 0, [batch(0, 2, RELEASE)])
    text = "The record state is invalid. The acknowledgement of delivery could not be completed."
    assert message(window.acknowledge("a", 0, [batch(1, 1, ACCEPT)])) == text
    assert message(window.acknowledge("b", 0, [batch(1, 1, ACCEPT)])) == text


def test_the_first_failure_undoes_the_whole_partition() -> None:
    window = window_of(3, 3, 3)
    acknowledge(window, batch(4, 4, RELEASE))
    batches = [batch(0, 0, ACCEPT), batch(2, 3, RENEW, REJECT), batch(4, 8, RELEASE)]
    assert window.acknowledge("a", 9, batches) is not None
    assert window.take_write() is None
    assert window.next_deadline_ms == 30_000
    assert acquire(window, log(9)) == [(4, 4, 2)]
    assert acknowledge(window, batch(0, 8, ACCEPT)) is None
    assert window.start_offset == 9


def test_an_offset_is_acknowledged_once_in_a_request() -> None:
    window = window_of(3)
    assert window.acknowledge("a", 0, [batch(0, 1, ACCEPT), batch(1, 2, ACCEPT)]) is not None
    assert window.take_write() is None


def test_a_release_at_the_limit_archives() -> None:
    window = window_of(3, limit=2)
    acknowledge(window, batch(0, 2, RELEASE))
    acquire(window, log(3))
    window.acknowledge("a", 0, [batch(0, 0, RELEASE), batch(2, 2, RELEASE)])
    assert store(window) == [(0, 0, 4, 2), (2, 2, 4, 2)]
    assert window.start_offset == 1


def test_a_renewal_restarts_the_lock() -> None:
    window = window_of(3)
    window.settings = window.settings._replace(lock_duration_ms=60_000)
    assert window.acknowledge("a", 10_000, [batch(1, 1, RENEW)]) is None
    assert window.take_write() is None
    assert window.on_deadline(30_000) == 2
    assert store(window) == [(0, 0, 0, 1), (2, 2, 0, 1)]
    assert window.next_deadline_ms == 70_000
    assert window.on_deadline(69_999) == 0
    assert window.on_deadline(70_000) == 1


def test_renewals_may_be_disabled() -> None:
    window = window_of(3)
    window.settings = window.settings._replace(renew_enabled=False)
    error = window.acknowledge("a", 0, [batch(0, 1, ACCEPT, RENEW)])
    assert message(error) == "Renewing acquisition locks is not enabled for the group."
    assert window.take_write() is None


def test_a_record_may_be_finished_after_its_renewal_in_one_request() -> None:
    window = window_of(3)
    assert window.acknowledge("a", 9, [batch(0, 1, RENEW), batch(1, 2, ACCEPT)]) is None
    assert store(window) == [(1, 2, 2, 1)]
    assert window.on_deadline(30_000) == 0
    assert window.on_deadline(30_009) == 1


def test_a_write_that_fails_leaves_records_with_their_member() -> None:
    window = window_of(3)
    window.acknowledge("a", 5, [batch(0, 2, ACCEPT, RELEASE, REJECT)])
    write = window.take_write()
    assert write is not None
    assert (window.start_offset, window.next_deadline_ms) == (0, None)
    window.failed(write, 29_999)
    assert (window.start_offset, window.delivery_complete_count) == (0, 0)
    assert window.next_deadline_ms == 30_000
    assert acquire(window, log(3)) == []
    assert acknowledge(window, batch(0, 2, ACCEPT)) is None
    assert window.start_offset == 3


@pytest.mark.parametrize("limit", [2, 5])
@pytest.mark.parametrize("end", ["lock", "session"])
def test_a_write_that_fails_after_the_end_of_the_lock_releases(limit: int, end: str) -> None:
    window = window_of(3, limit=limit)
    acknowledge(window, batch(0, 2, RELEASE))
    acquire(window, log(3))
    window.acknowledge("a", 5, [batch(0, 2, ACCEPT)])
    write = window.take_write()
    assert write is not None
    if end == "session":
        window.release_all("a")
    window.failed(write, 30_000 if end == "lock" else 10)
    assert window.take_write() is None
    assert acquire(window, log(3)) == ([] if limit == 2 else [(0, 2, 3)])
    assert window.start_offset == (3 if limit == 2 else 0)


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
