"""Polls have times of the coordinators' clock only if that is known well enough."""

from kohort.watch.reader import ClockDifference


def test_a_few_records_that_were_read_late_do_not_set_the_clock() -> None:
    clock = ClockDifference()
    clock.compare(100_900, 100_000)
    assert clock.ahead_ms is None
    for late_ms in range(40):
        clock.compare(200_000 + 20 * late_ms, 200_000)
    assert clock.ahead_ms == 0


def test_a_clock_that_is_behind_is_noticed() -> None:
    clock = ClockDifference()
    for late_ms in range(40):
        clock.compare(100_000 + late_ms, 160_000)
    assert clock.ahead_ms == -60_000
