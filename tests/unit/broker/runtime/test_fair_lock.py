"""A lock that is granted round robin by owner."""

import asyncio

import pytest

from kohort.broker.runtime.fair_lock import FairLock


@pytest.mark.parametrize("gets_lock", [True, False])
async def test_a_cancelled_waiter_passes_the_lock_on(gets_lock: bool) -> None:
    lock = FairLock()
    order: list[str] = []

    async def take(name: str) -> None:
        async with lock.held_by(name):
            order.append(name)
            await asyncio.sleep(0)

    async with lock.held_by("a"):
        second, third = asyncio.create_task(take("b")), asyncio.create_task(take("c"))
        await asyncio.sleep(0)
        if not gets_lock:
            second.cancel()
    second.cancel()
    await asyncio.gather(second, third, return_exceptions=True)
    assert order == ["c"]
    async with lock.held_by("d"):
        pass
