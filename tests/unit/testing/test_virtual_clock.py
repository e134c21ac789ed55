import pytest

from kohort.testing.virtual_clock import VirtualClock


def test_virtual_time_moves_only_when_told() -> None:
    clock = VirtualClock(monotonic_ms=5, wall_ms=1_000)
    assert (clock.monotonic_ms(), clock.wall_ms()) == (5, 1_000)
    assert clock.advance(10) == 15
    assert (clock.monotonic_ms(), clock.wall_ms()) == (15, 1_010)


def test_the_wall_clock_may_jump_back_and_monotonic_time_does_not() -> None:
    clock = VirtualClock(monotonic_ms=5, wall_ms=1_000)
    clock.jump_wall(-600)
    assert (clock.monotonic_ms(), clock.wall_ms()) == (5, 400)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
