"""Answers that are made once for many: for how long they are good."""

import asyncio

from kohort.broker.console.timed_cache import AGE_MS_MIN, WORTH, TimedCache
from kohort.testing.virtual_clock import VirtualClock


class Costly:
    """Takes some time; counts how often it was asked."""

    def __init__(self, takes_ms: int) -> None:
        self.clock = VirtualClock()
        self.takes_ms = takes_ms
        self.made = 0
        self.remembered = TimedCache(self._make, self.clock)

    async def _make(self) -> int:
        self.made += 1
        await asyncio.sleep(0)
        self.clock.advance(self.takes_ms)
        return self.made


async def test_a_crowd_is_answered_with_one() -> None:
    costly = Costly(300)
    answers = await asyncio.gather(*(costly.remembered.wait() for _ in range(20)))
    assert answers == [1] * 20


async def test_an_answer_is_good_for_ten_times_as_long_as_it_took() -> None:
    costly = Costly(300)
    await costly.remembered.wait()
    costly.clock.advance(300 * WORTH - 300 - 1)
    assert await costly.remembered.wait() == 1
    costly.clock.advance(1)
    assert await costly.remembered.wait() == 2


async def test_one_that_took_no_time_is_good_for_a_second() -> None:
    costly = Costly(0)
    await costly.remembered.wait()
    costly.clock.advance(AGE_MS_MIN - 1)
    assert await costly.remembered.wait() == 1
    costly.clock.advance(1)
    assert await costly.remembered.wait() == 2


async def test_it_is_let_go_of_when_no_one_asks_any_more() -> None:
    costly = Costly(0)
    await costly.remembered.wait()
    costly.remembered._forget()
    assert await costly.remembered.wait() == 2
