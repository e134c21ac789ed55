"""Work in steps: a generator that yields wherever somebody else could have a turn, and returns what
it has made. Its driver decides when others have theirs (`kohort.broker.runtime.slices`), or goes
through it at once.
"""

from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]

FEW: Final = 100
"""Pieces of work that make one step where each costs a microsecond or less: to leave off and go on
would cost as much as the work."""

SOME: Final = 20
"""Pieces of work that make one step where each costs some ten microseconds."""


def at_once(steps: Steps[T]) -> T:
    """Go through all steps without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            made: T = stop.value
            return made
