"""A lock that is granted round robin by owner."""

import asyncio

from kohort.broker.runtime.fair_lock import FairLock


async def test_a_waiter_that_is_cancelled_when_it_gets_the_lock_passes_it_on() -> None:
    lock = FairLock()
    order: list[str] = []

    async def take(name: str) -> None:
        async with lock.held_by(name):
            order.append(name)
            await asyncio.sleep(0)

    async with lock.held_by("a"):
        second, third = asyncio.create_task(take("b")), asyncio.create_task(take("c"))
        await asyncio.sleep(0)
    second.cancel()
    await asyncio.gather(second, third, return_exceptions=True)
    assert order == ["c"]
    async with lock.held_by("d"):
        pass
