"""Long work on the event loop in slices, with other work in between.

A slice ends after its budget of milliseconds, on any machine. Work is divided into steps
(`kohort.groups.steps`) and checks its slice after each of them. A slice also ends after
`CHECKS_MAX` checks, because the virtual clock of tests and simulations does not advance during
work; that keeps their runs reproducible.

There are three ways to use slices: `Slice.pause` in a coroutine's own loop, `run` for a generator
of steps, and `RoundRobin` for many instances of the same kind of work. A coroutine that has
something to do between two slices passes a function to `pause`. Code that cannot await at the end
of its slice (the steps of a group, the batches of a request) checks `is_over`; its caller then
awaits `yield_to_loop`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias, TypeVar

from kohort.groups.steps import Steps

logger = logging.getLogger(__name__)

T = TypeVar("T")

SLICE_MS: Final = 2
"""Budget of a slice: long compared to the cost of a switch, short compared to a request's latency.
As the clock counts whole milliseconds, a slice lasts between one and two, plus the rest of its last
step."""

CHECKS_MAX: Final = 1_000
"""Maximum steps of a slice, for virtual clocks; on a real clock, the budget ends first."""


ITERATIONS_BETWEEN: Final = 2
"""Event loop iterations from one slice to the next. Data received during a slice is read at the end
of its iteration; the request is executed and answered in the following one, which has no slice.
With a slice in every iteration, each request would wait for two slices."""


async def yield_to_loop() -> None:
    """Let other work run, for `ITERATIONS_BETWEEN` event loop iterations."""
    for _ in range(ITERATIONS_BETWEEN):
        await asyncio.sleep(0)


class Monotonic(Protocol):
    def monotonic_ms(self) -> int: ...


class Slice:
    """A period of work on the loop, which begins when the object is created."""

    __slots__ = ("_budget_ms", "_checks_left", "_checks_max", "_clock", "_ends_ms")

    def __init__(
        self, clock: Monotonic, budget_ms: int = SLICE_MS, checks_max: int = CHECKS_MAX
    ) -> None:
        """Begin the first slice. `checks_max` should be below the default if the steps cause work
        that runs after the slice, and so does not count against `budget_ms`.
        """
        self._clock = clock
        self._budget_ms = budget_ms
        self._checks_max = checks_max
        self.begin()

    def begin(self) -> None:
        """Begin the next slice, after other work has run."""
        self._ends_ms = self._clock.monotonic_ms() + self._budget_ms
        self._checks_left = self._checks_max

    def is_over(self) -> bool:
        """Whether to let other work run; to be called once after each step."""
        self._checks_left -= 1
        return self._checks_left <= 0 or self._clock.monotonic_ms() >= self._ends_ms

    async def pause(self, between: Callable[[], Awaitable[None]] | None = None) -> None:
        """Let other work run if the slice is over, and begin the next slice. If the slice is over,
        `between` is called first, to complete work that the slice began.
        """
        if self.is_over():
            if between is not None:
                await between()
            await yield_to_loop()
            self.begin()


async def run(steps: Steps[T], time_slice: Slice) -> T:
    """Run all steps, in this slice and as many more as needed; return the generator's value."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        await time_slice.pause()


Work: TypeAlias = Callable[[Slice], bool | None]
"""Work that can be spread over loop iterations: it continues until its slice is over, and returns
True if there is more. If it raises, it is called again in the next slice, so it must skip the
failing part then: work that always fails is called, and logged, once per slice for ever."""


class RoundRobin:
    """A queue of work of the same kind; all of it shares one slice per loop iteration.

    If each of twenty groups had a slice in the same iteration, the iteration would take twenty
    times as long.
    """

    def __init__(
        self, clock: Monotonic, budget_ms: int = SLICE_MS, checks_max: int = CHECKS_MAX
    ) -> None:
        """Create an empty queue; the limits are those of each slice."""
        self._clock = clock
        self._budget_ms = budget_ms
        self._checks_max = checks_max
        self._waiting: deque[Work] = deque()
        self._next: asyncio.Handle | None = None

    @property
    def waiting_count(self) -> int:
        """Number of callables in the queue."""
        return len(self._waiting)

    def add(self, work: Work) -> None:
        """Run `work` slice by slice until it has no more to do."""
        self._waiting.append(work)
        if self._next is None:
            self._schedule(1)

    async def wait_idle(self) -> None:
        while self._waiting:
            await yield_to_loop()

    def clear(self) -> None:
        self._waiting.clear()

    def new_slice(self) -> Slice:
        """Create a slice for work that runs immediately, outside the queue."""
        return Slice(self._clock, self._budget_ms, self._checks_max)

    def _schedule(self, iterations: int) -> None:
        """Schedule the next slice after this number of event loop iterations."""
        loop = asyncio.get_running_loop()
        if iterations > 1:
            self._next = loop.call_soon(self._schedule, iterations - 1)
        else:
            self._next = loop.call_soon(self._run_slice)

    def _run_slice(self) -> None:
        time_slice = self.new_slice()
        failed: list[Work] = []
        while self._waiting:
            work = self._waiting.popleft()
            try:
                is_more = work(time_slice)
            except Exception:
                # The failed work runs again in the next slice, not in this one: work that always
                # fails would otherwise run, and log its error, until the slice is over.
                logger.exception("Internal error in work done in slices")
                is_more = False
                failed.append(work)
            if is_more:
                self._waiting.append(work)
            if time_slice.is_over():
                break
        self._waiting += failed
        self._next = None
        if self._waiting:
            self._schedule(ITERATIONS_BETWEEN)
