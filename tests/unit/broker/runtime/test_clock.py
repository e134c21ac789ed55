import time

from kohort.broker.runtime.clock import SystemClock


def test_the_system_clock_counts_milliseconds() -> None:
    clock = SystemClock()
    monotonic_ms, wall_ms = clock.monotonic_ms(), clock.wall_ms()
    time.sleep(0.02)
    assert 20 <= clock.monotonic_ms() - monotonic_ms < 5_000
    assert abs(wall_ms - time.time() * 1000) < 5_000
