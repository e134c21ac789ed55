"""What a window acquires, and what ends without the member."""

from kohort.groups.share.states import RecordState
from kohort.groups.share.window import LogBatch, Window, WindowSettings
from tests.unit.groups.share.windows import ACCEPT, RELEASE, acknowledge, acquire, batch, log


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


def test_whole_batches_are_acquired_until_max_records() -> None:
    window = Window(WindowSettings(), 0)
    assert acquire(window, log(3, 3, 3, 3), max_records=4) == [(0, 5, 1)]
    assert acquire(window, log(3, 3, 3, 3), max_records=4) == [(6, 11, 1)]


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


def test_offsets_that_are_finished_one_by_one_are_kept_as_one_range() -> None:
    window = Window(WindowSettings(), 0)
    acquire(window, log(100))
    for offset in range(1, 100):
        acknowledge(window, batch(offset, offset, ACCEPT))
    states = [(each.first, each.last, each.state) for each in window.segments()]
    assert states == [(0, 0, RecordState.ACQUIRED), (1, 99, RecordState.ACKNOWLEDGED)]


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
