"""Long work on the event loop, in slices: others have their turns of the loop in between.

Time decides: a slice is over after its budget of milliseconds, on any machine. Work is cut into
steps (`kohort.broker.core.steps`) and looks at its slice after each. A slice is over after
`LOOKS_MAX` looks as well. That ends it where time stands still while work is done: under the
virtual clock of tests and simulations, where a run therefore goes the same way every time.

There are three ways to use it: `Slice.pause` in a coroutine's own loop, `run` for a generator of
steps, and `RoundRobin` where many do the same kind of work.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias, TypeVar

from kohort.broker.core.steps import Steps

logger = logging.getLogger(__name__)

T = TypeVar("T")

SLICE_MS: Final = 2
"""Budget of a slice: long enough to be worth the switch, short enough that nobody notices. As the
clock counts whole milliseconds, it lasts between one and two, and what its last step takes."""

LOOKS_MAX: Final = 1_000
"""Steps of a slice at most: more than the budget has room for, except where time stands still."""


class Monotonic(Protocol):
    """A clock, as far as a slice has to know it."""

    def monotonic_ms(self) -> int:
        """See `kohort.broker.runtime.clock.Clock`."""
        ...


class Slice:
    """A stretch of work on the loop, which begins when this is made."""

    __slots__ = ("_budget_ms", "_clock", "_ends_ms", "_looks_left", "_looks_max")

    def __init__(
        self, clock: Monotonic, budget_ms: int = SLICE_MS, looks_max: int = LOOKS_MAX
    ) -> None:
        """Begin the first slice. `looks_max` is to be smaller where steps cause work that comes
        after them, which no clock shows while they are taken.
        """
        self._clock = clock
        self._budget_ms = budget_ms
        self._looks_max = looks_max
        self.begin()

    def begin(self) -> None:
        """Begin the next slice: others have had their turn."""
        self._ends_ms = self._clock.monotonic_ms() + self._budget_ms
        self._looks_left = self._looks_max

    def is_over(self) -> bool:
        """Whether others should have their turn; to be asked once after each step."""
        self._looks_left -= 1
        return self._looks_left <= 0 or self._clock.monotonic_ms() >= self._ends_ms

    async def pause(self) -> None:
        """Let others have their turn if the slice is over, and begin the next one."""
        if self.is_over():
            await asyncio.sleep(0)
            self.begin()


async def run(steps: Steps[T], piece: Slice) -> T:
    """Go through the steps in this slice and as many more as it takes; returns what they make."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            made: T = stop.value
            return made
        await piece.pause()


Work: TypeAlias = Callable[[Slice], bool | None]
"""Work that can wait for a few iterations of the loop: it goes on until its slice is over, and
returns True if there is more. If it raises, it is called again: what it fails at must not come
again.
"""


class RoundRobin:
    """A queue of those who do the same kind of work, which have one slice in each iteration of the
    loop between them.

    A slice for each of twenty groups in one iteration is together not bounded.
    """

    def __init__(
        self, clock: Monotonic, budget_ms: int = SLICE_MS, looks_max: int = LOOKS_MAX
    ) -> None:
        """Make an empty queue; the bounds are those of each slice."""
        self._clock = clock
        self._budget_ms = budget_ms
        self._looks_max = looks_max
        self._waiting: deque[Work] = deque()
        self._next: asyncio.Handle | None = None

    @property
    def waiting_count(self) -> int:
        """How many have more to do."""
        return len(self._waiting)

    def add(self, work: Work) -> None:
        """Have it take turns until it has no more to do."""
        self._waiting.append(work)
        if self._next is None:
            self._come_back()

    def clear(self) -> None:
        """Forget what is left."""
        self._waiting.clear()

    def new_slice(self) -> Slice:
        """Make a slice for a turn that is taken at once, outside the queue."""
        return Slice(self._clock, self._budget_ms, self._looks_max)

    def _come_back(self) -> None:
        self._next = asyncio.get_running_loop().call_soon(self._take_turns)

    def _take_turns(self) -> None:
        piece = self.new_slice()
        while self._waiting:
            work = self._waiting.popleft()
            try:
                is_more = work(piece)
            except Exception:
                # It expects another turn, and would never be added again without one.
                logger.exception("A fault of ours in work over several turns")
                is_more = True
            if is_more:
                self._waiting.append(work)
            if piece.is_over():
                break
        self._next = None
        if self._waiting:
            self._come_back()
