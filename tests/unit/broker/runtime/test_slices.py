"""Long work lets others have their turns: by time, and where time stands still by steps."""

import asyncio

import pytest

from kohort.broker.runtime.slices import (
    CHECKS_MAX,
    ITERATIONS_BETWEEN,
    SLICE_MS,
    RoundRobin,
    Slice,
    run,
)
from kohort.groups.steps import Steps
from kohort.testing.virtual_clock import VirtualClock
from tests.support.waiting import next_slice


def counted_steps(count: int, clock: VirtualClock, step_ms: int) -> Steps[int]:
    for _ in range(count):
        clock.advance(step_ms)
        yield
    return count


async def turns_of(steps: Steps[int], clock: VirtualClock) -> int:
    """Returns how often others had the loop until the steps were done."""
    work = asyncio.ensure_future(run(steps, Slice(clock)))
    turns = -1
    while not work.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


class Worker:
    """Works slice by slice until its pieces are done, each of which takes some time."""

    def __init__(self, name: str, pieces: int, clock: VirtualClock, done: list[str]) -> None:
        self.name = name
        self._left = pieces
        self._clock = clock
        self._done = done

    def run_slice(self, time_slice: Slice) -> bool:
        while self._left:
            self._left -= 1
            self._clock.advance(1)
            self._done.append(self.name)
            if time_slice.is_over():
                break
        return self._left > 0


def test_a_slice_ends_though_time_stands_still() -> None:
    time_slice = Slice(VirtualClock())
    assert [time_slice.is_over() for _ in range(CHECKS_MAX)] == [False] * (CHECKS_MAX - 1) + [True]


async def test_a_pause_lets_others_have_the_loop_only_when_the_slice_is_over() -> None:
    clock, others = VirtualClock(), list[str]()
    time_slice = Slice(clock)
    loop = asyncio.get_running_loop()
    loop.call_soon(others.append, "first")
    await time_slice.pause()
    assert others == []
    clock.advance(SLICE_MS)
    await time_slice.pause()
    assert others == ["first"]
    loop.call_soon(others.append, "second")
    await time_slice.pause()
    assert others == ["first"], "a new slice has begun"


async def test_what_is_to_be_done_between_two_slices_is_done_before_others_run() -> None:
    clock, done = VirtualClock(), list[str]()
    time_slice = Slice(clock)

    async def write() -> None:
        done.append("written")

    await time_slice.pause(between=write)
    assert done == []
    asyncio.get_running_loop().call_soon(done.append, "others")
    clock.advance(SLICE_MS)
    await time_slice.pause(between=write)
    assert done == ["written", "others"]
    await time_slice.pause(between=write)
    assert len(done) == 2, "a new slice has begun"


async def test_others_have_a_turn_after_each_step_that_takes_long() -> None:
    clock = VirtualClock()
    assert await turns_of(counted_steps(20, clock, SLICE_MS), clock) == 20 * ITERATIONS_BETWEEN


async def test_those_of_one_kind_of_work_have_one_slice_in_a_turn_between_them() -> None:
    clock, done = VirtualClock(), list[str]()
    queue = RoundRobin(clock, budget_ms=2)
    for name in "abc":
        queue.add(Worker(name, 4, clock, done).run_slice)
    seen = []
    for _ in range(7):
        await next_slice()
        seen.append("".join(done))
        done.clear()
    assert seen == ["aa", "bb", "cc", "aa", "bb", "cc", ""]


async def test_work_may_ask_for_more_work_and_what_is_cleared_is_not_done() -> None:
    clock, done = VirtualClock(), list[str]()
    queue = RoundRobin(clock, budget_ms=1)

    def ask(time_slice: Slice) -> None:
        queue.add(Worker("asked for", 1, clock, done).run_slice)

    queue.add(ask)
    for _ in range(3):
        await next_slice()
    assert done == ["asked for"]
    queue.add(Worker("cleared", 1, clock, done).run_slice)
    queue.clear()
    for _ in range(3):
        await next_slice()
    assert done == ["asked for"]
    queue.add(Worker("later", 1, clock, done).run_slice)
    for _ in range(3):
        await next_slice()
    assert done == ["asked for", "later"]


async def test_work_that_always_fails_is_called_once_in_a_slice(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, done = VirtualClock(), list[str]()
    queue = RoundRobin(clock, budget_ms=2)

    pieces: list[Slice] = []

    def fail(time_slice: Slice) -> bool:
        pieces.append(time_slice)
        # A fault as any other, whatever its type means to a generator.
        return next(iter(()))

    queue.add(fail)
    queue.add(Worker("a", 4, clock, done).run_slice)
    for _ in range(5):
        await next_slice()
    assert len(set(map(id, pieces))) == len(pieces) > 3
    assert len(caplog.records) == len(pieces)
    assert done == ["a"] * 4
    queue.clear()
