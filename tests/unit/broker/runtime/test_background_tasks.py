"""What lasts as long as the broker goes on after an error, and says so."""

import asyncio
from itertools import pairwise

import pytest

from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.testing.virtual_clock import VirtualClock
from tests.support.virtual_time import virtual


@virtual
async def test_a_task_that_fails_is_started_again_after_a_growing_time(
    clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    begun_s: list[int] = []
    tasks = BackgroundTasks(clock)

    async def work() -> None:
        begun_s.append(clock.monotonic_ms() // 1000)
        raise RuntimeError("unforeseen")

    task = tasks.start("work", work)
    await asyncio.sleep(1200)
    assert tasks.failure_counts == {"work": len(begun_s)}
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    waits = [after - before for before, after in pairwise(begun_s)]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    told = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert len(told) == len(begun_s), "a line for each failure"
    assert told[2].message == "Internal error: the task 'work' failed, and is restarted in 4 s"
    assert all(record.exc_info for record in told)


@virtual
async def test_a_task_that_is_cancelled_from_within_has_failed_and_is_started_again(
    clock: VirtualClock,
) -> None:
    tasks = BackgroundTasks(clock)

    async def work() -> None:
        waiting = asyncio.get_running_loop().create_future()
        waiting.cancel()
        await waiting

    task = tasks.start("work", work)
    await asyncio.sleep(2)
    assert tasks.failure_counts == {"work": 2}
    assert not task.done()
    task.cancel()
    await asyncio.wait([task])


@virtual
async def test_a_cancelled_task_ends_even_if_its_clean_up_fails(clock: VirtualClock) -> None:
    begun = 0
    tasks = BackgroundTasks(clock)

    async def work() -> None:
        nonlocal begun
        begun += 1
        if begun == 1:
            try:
                await asyncio.sleep(3600)
            finally:
                raise OSError("the clean-up failed")

    task = tasks.start("work", work)
    await asyncio.sleep(1)
    task.cancel()
    await asyncio.wait([task])
    assert begun == 1
    assert isinstance(task.exception(), OSError)


@virtual
async def test_a_task_fails_until_it_has_worked_for_as_long_as_before(clock: VirtualClock) -> None:
    began_ms = clock.monotonic_ms()
    tasks = BackgroundTasks(clock)

    async def work() -> None:
        await asyncio.sleep(100 if clock.monotonic_ms() == began_ms else 1 << 20)
        raise RuntimeError("unforeseen")

    async def other() -> None:
        await asyncio.sleep(1 << 20)

    started = [tasks.start("work", work), tasks.start("other", other)]
    await asyncio.sleep(99)
    assert tasks.failing() == []
    await asyncio.sleep(2)
    assert tasks.failing() == ["work"]
    await asyncio.sleep(99)
    assert tasks.failing() == ["work"]
    await asyncio.sleep(5)
    assert tasks.failing() == []
    assert tasks.failure_counts == {"work": 1, "other": 0}
    for task in started:
        task.cancel()
    await asyncio.wait(started)


@virtual
async def test_a_task_that_returns_has_ended(clock: VirtualClock) -> None:
    tasks = BackgroundTasks(clock)

    async def work() -> None:
        await asyncio.sleep(1)

    await tasks.start("work", work)
    assert tasks.failure_counts == {"work": 0}
