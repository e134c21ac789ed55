"""The meter of the event loop's lateness."""

import asyncio
import time

import pytest

from kohort.broker.metrics.stalls import LAG_BOUNDS_S, TICK_S, LoopLagMeter


def counts_by_bound(meter: LoopLagMeter) -> dict[float, int]:
    bounds = (*LAG_BOUNDS_S, float("inf"))
    return {bound: count for bound, count in zip(bounds, meter.lag.counts, strict=True) if count}


def test_a_stall_counts_for_every_tick_it_swallowed_as_late_as_each_would_have_been() -> None:
    meter = LoopLagMeter(now=lambda: 0.0)
    meter.observe(0.22)
    assert TICK_S == 0.05
    assert counts_by_bound(meter) == {0.25: 3, 0.1: 1, 0.02: 1}
    assert meter.lag.total == pytest.approx(0.22 + 0.17 + 0.12 + 0.07 + 0.02)


def test_a_tick_in_time_counts_once_in_the_first_bucket() -> None:
    meter = LoopLagMeter(now=lambda: 0.0)
    meter.observe(0.0)
    assert counts_by_bound(meter) == {LAG_BOUNDS_S[0]: 1}


def test_a_machine_that_slept_for_hours_counts_as_a_minute() -> None:
    meter = LoopLagMeter(now=lambda: 0.0)
    meter.observe(8 * 3600.0)
    assert sum(meter.lag.counts) * TICK_S == pytest.approx(60)


def test_the_recent_maximum_is_forgotten_after_two_minutes() -> None:
    now = [0.0]
    meter = LoopLagMeter(now=lambda: now[0])
    meter.observe(0.3)
    assert meter.recent_maximum_s == 0.3
    now[0] = 121.0
    assert meter.recent_maximum_s == 0.0


async def test_a_callback_that_blocks_the_loop_shows_until_the_meter_is_stopped() -> None:
    meter = LoopLagMeter()
    meter.start()
    await asyncio.sleep(TICK_S / 2)
    time.sleep(0.3)  # noqa: ASYNC251 - the stall that is to be seen.
    await asyncio.sleep(TICK_S)
    assert meter.recent_maximum_s > 0.2
    assert sum(meter.lag.counts) >= 5
    meter.stop()
    seen = sum(meter.lag.counts)
    await asyncio.sleep(3 * TICK_S)
    assert sum(meter.lag.counts) == seen
