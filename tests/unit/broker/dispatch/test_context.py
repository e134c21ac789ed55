"""A coroutine that is timed goes on as any other, and its waits are no work."""

import asyncio
import time

import pytest

from kohort.broker.dispatch.context import MeteredCoroutine
from kohort.broker.network.service import ConnectionInfo

WORKED_S = 0.02


def work() -> None:
    ends_s = time.perf_counter() + WORKED_S
    while time.perf_counter() < ends_s:
        pass


async def test_each_step_of_work_is_noted_and_no_wait() -> None:
    connection = ConnectionInfo("/127.0.0.1")

    async def in_steps() -> str:
        for _ in range(3):
            work()
            await asyncio.sleep(2 * WORKED_S)
        return "done"

    begun_s = time.perf_counter()
    assert await asyncio.create_task(MeteredCoroutine(in_steps(), connection)) == "done"
    took_s = time.perf_counter() - begun_s
    assert 3 * WORKED_S <= connection.worked_s <= took_s - 6 * WORKED_S


async def test_it_is_cancelled_and_fails_as_what_it_times() -> None:
    connection = ConnectionInfo("/127.0.0.1")
    ended: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            work()
            ended.append("here")

    async def failing() -> None:
        await asyncio.sleep(0)
        raise ValueError("of its own")

    task = asyncio.create_task(MeteredCoroutine(endless(), connection))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["here"]
    assert connection.worked_s >= WORKED_S
    with pytest.raises(ValueError, match="of its own"):
        await asyncio.create_task(MeteredCoroutine(failing(), connection))
