"""Long work on the event loop in slices, with other work in between.

Time decides: a slice is over after its budget of milliseconds, on any machine. Work is divided into
steps (`kohort.groups.steps`) and checks its slice after each. A slice is also over after
`LOOKS_MAX` checks. That ends it if time stands still while work is done: under the virtual clock of
tests and simulations, which makes runs reproducible.

There are three ways to use it: `Slice.pause` in a coroutine's own loop, `run` for a generator of
steps, and `RoundRobin` for many instances of the same kind of work. A loop with something to do
between two slices hands it to the pause. One that cannot await where its slice ends (the steps of a
group, the batches of a request) asks its slice itself; its driver then awaits `let_others_run`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias, TypeVar

from kohort.groups.steps import Steps

logger = logging.getLogger(__name__)

T = TypeVar("T")

SLICE_MS: Final = 2
"""Budget of a slice: long enough to be worth the switch, short enough not to be noticed. As the
clock counts whole milliseconds, a slice lasts between one and two, plus the rest of its last
step."""

LOOKS_MAX: Final = 1_000
"""Maximum steps of a slice: more than fit in the budget, except where time stands still."""


ITERATIONS_BETWEEN: Final = 2
"""Iterations of the loop from one slice to the next. What came in during a slice is read at the end
of its iteration, and executed and answered in the following one, which is free for it: in the same
iteration a slice would come first, so that every request would wait for two."""


async def let_others_run() -> None:
    """Let other work run between two slices."""
    for _ in range(ITERATIONS_BETWEEN):
        await asyncio.sleep(0)


class Monotonic(Protocol):
    """The clock interface that a slice needs."""

    def monotonic_ms(self) -> int:
        """See `kohort.broker.runtime.clock.Clock`."""
        ...


class Slice:
    """A period of work on the loop, which begins when this is created."""

    __slots__ = ("_budget_ms", "_clock", "_ends_ms", "_looks_left", "_looks_max")

    def __init__(
        self, clock: Monotonic, budget_ms: int = SLICE_MS, looks_max: int = LOOKS_MAX
    ) -> None:
        """Begin the first slice. `looks_max` should be smaller if steps cause later work, whose
        cost the clock does not show while they run.
        """
        self._clock = clock
        self._budget_ms = budget_ms
        self._looks_max = looks_max
        self.begin()

    def begin(self) -> None:
        """Begin the next slice, after other work has run."""
        self._ends_ms = self._clock.monotonic_ms() + self._budget_ms
        self._looks_left = self._looks_max

    def is_over(self) -> bool:
        """Whether to let other work run; to be called once after each step."""
        self._looks_left -= 1
        return self._looks_left <= 0 or self._clock.monotonic_ms() >= self._ends_ms

    async def pause(self, between: Callable[[], Awaitable[None]] | None = None) -> None:
        """Let other work run if the slice is over, and begin the next one. `between` is called
        first, if the slice is over: to finish what it has begun.
        """
        if self.is_over():
            if between is not None:
                await between()
            await let_others_run()
            self.begin()


async def run(steps: Steps[T], piece: Slice) -> T:
    """Run all steps, in this slice and as many more as needed; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            made: T = stop.value
            return made
        await piece.pause()


Work: TypeAlias = Callable[[Slice], bool | None]
"""Work that can be spread over loop iterations: it continues until its slice is over, and returns
True if there is more. If it raises, it is called again in the next slice, so the failing part must
not recur: one that fails each time is called, and logged, once per slice for ever."""


class RoundRobin:
    """A queue of work of the same kind, which shares one slice per loop iteration.

    Separate slices for each of twenty groups in one iteration would not be bounded together.
    """

    def __init__(
        self, clock: Monotonic, budget_ms: int = SLICE_MS, looks_max: int = LOOKS_MAX
    ) -> None:
        """Create an empty queue; the limits are those of each slice."""
        self._clock = clock
        self._budget_ms = budget_ms
        self._looks_max = looks_max
        self._waiting: deque[Work] = deque()
        self._next: asyncio.Handle | None = None

    @property
    def waiting_count(self) -> int:
        """How many instances have more to do."""
        return len(self._waiting)

    def add(self, work: Work) -> None:
        """Run `work` slice by slice until it has no more to do."""
        self._waiting.append(work)
        if self._next is None:
            self._come_back(1)

    def clear(self) -> None:
        """Drop all remaining work."""
        self._waiting.clear()

    def new_slice(self) -> Slice:
        """Create a slice for work that runs immediately, outside the queue."""
        return Slice(self._clock, self._budget_ms, self._looks_max)

    def _come_back(self, iterations: int) -> None:
        """Run the next slice after so many iterations of the loop."""
        loop = asyncio.get_running_loop()
        if iterations > 1:
            self._next = loop.call_soon(self._come_back, iterations - 1)
        else:
            self._next = loop.call_soon(self._run_slice)

    def _run_slice(self) -> None:
        piece = self.new_slice()
        failed: list[Work] = []
        while self._waiting:
            work = self._waiting.popleft()
            try:
                is_more = work(piece)
            except Exception:
                # It expects another slice, and would never be added again without one. Not in this
                # one: what fails at once could fill it with errors.
                logger.exception("Internal error in work done in slices")
                is_more = False
                failed.append(work)
            if is_more:
                self._waiting.append(work)
            if piece.is_over():
                break
        self._waiting += failed
        self._next = None
        if self._waiting:
            self._come_back(ITERATIONS_BETWEEN)
