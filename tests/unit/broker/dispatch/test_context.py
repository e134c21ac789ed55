"""A coroutine that is timed goes on as any other, and its waits are no work."""

import asyncio
from contextlib import suppress

import pytest

from kohort.broker.dispatch import context
from kohort.broker.dispatch.context import MeteredCoroutine
from kohort.broker.network.service import ConnectionInfo


class Processor:
    """A clock that only `work` advances."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def work(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Processor:
    clock = Processor()
    monkeypatch.setattr(context, "perf_counter", clock)
    return clock


async def test_each_step_of_work_is_noted_and_no_wait(processor: Processor) -> None:
    connection = ConnectionInfo("/127.0.0.1")

    async def in_steps() -> str:
        for _ in range(3):
            processor.work(1)
            await asyncio.sleep(0)
        return "done"

    async def others() -> None:
        while True:
            processor.work(100)
            await asyncio.sleep(0)

    busy = asyncio.create_task(others())
    assert await asyncio.create_task(MeteredCoroutine(in_steps(), connection)) == "done"
    busy.cancel()
    with suppress(asyncio.CancelledError):
        await busy
    assert connection.worked_s == 3
    assert processor.now_s >= 203  # The others did work while the three steps waited.


async def test_it_is_cancelled_and_fails_as_what_it_times(processor: Processor) -> None:
    connection = ConnectionInfo("/127.0.0.1")
    ended: list[str] = []

    async def endless() -> None:
        try:
            await asyncio.sleep(3_600)
        finally:
            processor.work(1)
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
    assert connection.worked_s == 1
    with pytest.raises(ValueError, match="of its own"):
        await asyncio.create_task(MeteredCoroutine(failing(), connection))
