"""What a window acquires, and what ends without the member."""

import pytest

from kohort.groups.share.states import RecordState
from kohort.groups.share.window import LogBatch, Window, WindowSettings
from tests.unit.groups.share.windows import (
    ACCEPT,
    RELEASE,
    acknowledge,
    acquire,
    batch,
    log,
    store,
)


def test_batch_size_cuts_new_ranges_at_producer_batches() -> None:
    settings = WindowSettings()
    assert acquire(Window(settings, 0), log(3, 3, 3, 3), max_records=12, batch_size=5) == [
        (0, 5, 1),
        (6, 11, 1),
    ]
    assert acquire(Window(settings, 0), log(1, 1, 1, 1), max_records=4, batch_size=3) == [
        (0, 2, 1),
        (3, 3, 1),
    ]
    assert acquire(Window(settings, 0), log(2, 9, 2), max_records=3, batch_size=2) == [
        (0, 1, 1),
        (2, 10, 1),
    ]


def test_a_batch_size_below_one_acts_as_one() -> None:
    window = Window(WindowSettings(), 0)
    assert acquire(window, log(2, 1), batch_size=-3) == [(0, 1, 1), (2, 2, 1)]


def test_whole_batches_are_acquired_until_max_records() -> None:
    window = Window(WindowSettings(), 0)
    assert acquire(window, log(3, 3, 3, 3), max_records=4) == [(0, 5, 1)]
    assert acquire(window, log(3, 3, 3, 3), max_records=4) == [(6, 11, 1)]


def test_available_offsets_of_a_split_range_come_all_at_once() -> None:
    window = Window(WindowSettings(), 0)
    acquire(window, log(20))
    acknowledge(window, batch(0, 2, RELEASE), batch(3, 3, ACCEPT), batch(4, 19, RELEASE))
    assert acquire(window, log(20), max_records=4) == [(0, 2, 2), (4, 19, 2)]


def test_the_record_limit_is_exact_and_leaves_the_rest_of_the_batch() -> None:
    window = Window(WindowSettings(), 0)
    assert acquire(window, log(10), max_records=4, record_limit=True) == [(0, 3, 1)]
    assert (window.position, window.end_offset) == (4, 9)
    assert acquire(window, log(10), max_records=4, record_limit=True) == [(4, 7, 1)]
    assert acquire(window, log(10), max_records=4) == [(8, 9, 1)]


def test_the_rest_of_a_huge_batch_is_not_enumerated() -> None:
    window = Window(WindowSettings(), 0)
    huge = [LogBatch(0, 2**40)]
    assert acquire(window, huge, max_records=2, record_limit=True) == [(0, 1, 1)]
    acknowledge(window, batch(0, 0, RELEASE), batch(1, 1, ACCEPT))
    assert acquire(window, huge, max_records=3, record_limit=True) == [(0, 0, 2), (2, 3, 1)]
    assert len(list(window.segments())) == 4


def test_ranges_are_not_joined_but_offsets_of_one_are() -> None:
    window = Window(WindowSettings(), 0)
    acquire(window, log(2, 2), batch_size=1)
    acknowledge(window, *(batch(offset, offset, RELEASE) for offset in range(4)))
    assert acquire(window, log(2, 2)) == [(0, 1, 2), (2, 3, 2)]


def test_no_records_are_acquired_for_none() -> None:
    window = Window(WindowSettings(), 0)
    assert acquire(window, log(10), max_records=0) == []
    assert acquire(window, log(10), max_records=-1) == []
    assert acquire(window, []) == []
    assert window.end_offset == -1


def test_offsets_that_are_finished_one_by_one_are_kept_as_one_range() -> None:
    window = Window(WindowSettings(), 0)
    acquire(window, log(100))
    for offset in range(1, 100):
        acknowledge(window, batch(offset, offset, ACCEPT))
    states = [(each.first, each.last, each.state) for each in window.segments()]
    assert states == [(0, 0, RecordState.ACQUIRED), (1, 99, RecordState.ACKNOWLEDGED)]


def test_a_full_window_delivers_only_what_is_released() -> None:
    window = Window(WindowSettings(max_record_locks=100), 0)
    batches = log(60, 60, 60)
    assert acquire(window, batches) == [(0, 119, 1)]
    assert (window.can_acquire, window.position <= window.end_offset) == (False, False)
    assert acquire(window, batches) == []
    acknowledge(window, batch(60, 119, ACCEPT))
    assert acquire(window, batches) == []
    acknowledge(window, batch(30, 59, RELEASE))
    assert window.can_acquire
    assert acquire(window, batches) == [(30, 59, 2)]
    acknowledge(window, batch(0, 29, ACCEPT))
    assert window.start_offset == 30
    assert acquire(window, batches) == [(120, 179, 1)]


def test_the_room_below_the_lock_limit_limits_records() -> None:
    window = Window(WindowSettings(max_record_locks=100), 0)
    acquire(window, log(90))
    assert acquire(window, log(90, 5, 5, 5, 5)) == [(90, 99, 1)]


def test_an_empty_window_begins_at_the_first_batch() -> None:
    window = Window(WindowSettings(), 0)
    assert acquire(window, log(3, first=9)) == [(9, 11, 1)]
    assert window.start_offset == 9


def test_offsets_that_are_missing_within_a_read_are_acquired() -> None:
    window = Window(WindowSettings(), 0)
    assert acquire(window, [LogBatch(0, 1), LogBatch(5, 6)]) == [(0, 6, 1)]


def test_released_offsets_that_the_log_has_lost_are_archived() -> None:
    window = Window(WindowSettings(), 0)
    acquire(window, log(8))
    acknowledge(window, batch(0, 1, ACCEPT), batch(2, 4, RELEASE), batch(6, 7, RELEASE))
    assert acquire(window, [LogBatch(4, 6), LogBatch(7, 7)]) == [(4, 4, 2), (6, 7, 2)]
    assert (window.start_offset, window.delivery_complete_count) == (4, 0)
    assert store(window) is None


def test_records_that_have_reached_a_lowered_limit_are_delivered_together() -> None:
    window = Window(WindowSettings(delivery_count_limit=5), 0)
    for count in (1, 2, 3):
        assert acquire(window, log(13)) == [(0, 12, count)]
        acknowledge(window, batch(0, 12, RELEASE))
    window.settings = WindowSettings(delivery_count_limit=3)
    assert acquire(window, log(13)) == [(0, 2, 4)]


def test_aborted_records_are_archived_when_they_are_read() -> None:
    window = Window(WindowSettings(), 0)
    batches = [LogBatch(0, 2), LogBatch(3, 4, is_aborted=True), LogBatch(5, 5), LogBatch(6, 6)]
    assert acquire(window, batches) == [(0, 2, 1), (5, 6, 1)]
    assert store(window) is None
    assert window.delivery_complete_count == 2
    acknowledge(window, batch(0, 2, ACCEPT))
    assert window.start_offset == 5


def test_a_window_of_aborted_records_is_empty() -> None:
    window = Window(WindowSettings(), 0)
    assert acquire(window, [LogBatch(0, 4, is_aborted=True)]) == []
    assert (window.start_offset, window.end_offset, window.is_idle) == (5, 4, True)


def test_aborted_records_are_archived_whoever_acquired_them() -> None:
    """Another member acquired them while the group read uncommitted records."""
    window = Window(WindowSettings(), 0)
    acquire(window, log(1, 5, 2))
    acknowledge(window, batch(1, 1, RELEASE))
    batches = [LogBatch(0, 0), LogBatch(1, 5, is_aborted=True), *log(2, 3, first=6)]
    assert acquire(window, batches, "b", max_records=1) == []
    assert acknowledge(window, batch(4, 5, RELEASE)) is not None
    assert acknowledge(window, batch(6, 7, RELEASE)) is None
    assert acquire(window, batches, "b", max_records=1) == [(6, 7, 2)]


def test_a_released_record_that_becomes_throttled_is_delivered_alone_in_its_partition() -> None:
    window = Window(WindowSettings(delivery_count_limit=3), 0)
    batches = log(2, 2, 2)
    acquire(window, batches, batch_size=1)
    acknowledge(window, batch(2, 3, RELEASE))
    acquire(window, batches)
    acknowledge(window, batch(0, 5, RELEASE))
    assert acquire(window, batches) == [(0, 1, 2)]
    assert acquire(window, batches) == [(2, 2, 3)]
    assert acquire(window, batches) == [(3, 3, 3)]
    assert acquire(window, batches) == [(4, 5, 2)]


@pytest.mark.parametrize(
    ("fresh", "expected"),
    [(3, [(0, 2, 2), (3, 4, 4)]), (5, [(0, 4, 2), (5, 9, 4)])],
)
def test_a_throttled_range_is_limited_from_its_first_throttled_offset_on(
    fresh: int, expected: list[tuple[int, int, int]]
) -> None:
    """A limit that the fresh offsets before it have reached already has no effect."""
    window = Window(WindowSettings(), 0)
    acquire(window, log(10))
    for _ in range(2):
        acknowledge(window, batch(fresh, 9, RELEASE))
        acquire(window, log(10))
    acknowledge(window, batch(0, 9, RELEASE))
    assert acquire(window, log(10)) == expected


def test_an_offset_beyond_the_read_does_not_throttle_its_range() -> None:
    window = Window(WindowSettings(), 0)
    batches = log(2, 5, 5)
    acquire(window, batches[:1])
    acquire(window, batches)
    for _ in range(2):
        acknowledge(window, batch(11, 11, RELEASE))
        acquire(window, batches)
    acknowledge(window, batch(0, 11, RELEASE))
    assert acquire(window, batches[:2]) == [(0, 1, 2), (2, 6, 2)]


def test_a_lowered_limit_allows_one_more_delivery() -> None:
    window = Window(WindowSettings(), 0)
    for _ in range(3):
        acquire(window, log(1))
        acknowledge(window, batch(0, 0, RELEASE))
    window.settings = window.settings._replace(delivery_count_limit=2)
    assert acquire(window, log(1)) == [(0, 0, 4)]
    acknowledge(window, batch(0, 0, RELEASE))
    assert window.start_offset == 1


def test_a_lock_ends_at_its_deadline() -> None:
    window = Window(WindowSettings(), 0)
    acquire(window, log(3), now_ms=7)
    acquire(window, log(3, 3), now_ms=9)
    assert window.next_deadline_ms == 30_007
    assert window.on_deadline(30_006) == 0
    assert window.on_deadline(30_007) == 3
    assert store(window) == [(0, 2, 0, 1)]
    assert window.next_deadline_ms == 30_009
    assert window.on_deadline(40_000) == 3
    assert store(window) == [(3, 5, 0, 1)]
    assert window.next_deadline_ms is None


def test_parts_of_a_range_keep_its_deadline() -> None:
    window = Window(WindowSettings(), 0)
    acquire(window, log(9))
    acknowledge(window, batch(4, 4, ACCEPT), now_ms=5)
    assert window.on_deadline(30_000) == 8
    assert store(window) == [(0, 3, 0, 1), (5, 8, 0, 1)]


def test_the_end_of_a_session_releases_what_its_member_holds() -> None:
    window = Window(WindowSettings(delivery_count_limit=2), 0)
    acquire(window, log(2), "a")
    acquire(window, log(2, 2), "b")
    acquire(window, log(2, 2, 2), "a")
    window.acknowledge("a", 0, [batch(5, 5, ACCEPT)])
    window.release_all("a")
    assert store(window) == [(0, 1, 0, 1), (4, 4, 0, 1), (5, 5, 2, 1)]
    window.release_all("a")
    assert store(window) is None
    assert acquire(window, log(6), "c") == [(0, 1, 2), (4, 4, 2)]
    window.release_all("c")
    assert store(window) == [(0, 1, 4, 2), (4, 4, 4, 2)]
    assert window.start_offset == 2


def test_a_release_that_cannot_be_written_stands() -> None:
    window = Window(WindowSettings(), 0)
    acquire(window, log(3))
    window.on_deadline(30_000)
    write = window.take_write()
    assert write is not None
    window.failed(write, 30_000)
    assert window.take_write() is None
    assert acquire(window, log(3)) == [(0, 2, 2)]


def test_records_below_the_log_start_are_forgotten() -> None:
    window = Window(WindowSettings(), 0)
    acquire(window, log(6))
    acknowledge(window, batch(0, 1, RELEASE))
    window.log_start_moved(4)
    assert (window.start_offset, window.position) == (4, 6)
    assert acknowledge(window, batch(2, 4, ACCEPT)) is None
    assert window.on_deadline(30_000) == 1
    window.log_start_moved(3)
    assert window.start_offset == 5


def test_a_log_start_beyond_the_window_empties_it() -> None:
    window = Window(WindowSettings(), 0)
    acquire(window, log(6))
    window.acknowledge("a", 0, [batch(0, 0, RELEASE), batch(5, 5, ACCEPT)])
    write = window.take_write()
    assert write is not None
    window.log_start_moved(9)
    assert (window.start_offset, window.end_offset, window.next_deadline_ms) == (9, 8, None)
    window.written(write)
    assert (
        window.start_offset,
        window.delivery_complete_count,
        window.position <= window.end_offset,
    ) == (
        9,
        0,
        False,
    )
    assert acquire(window, log(3, first=9)) == [(9, 11, 1)]
