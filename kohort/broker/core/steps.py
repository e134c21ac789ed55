"""Work in steps: a generator that yields whenever others should have a turn, and returns
what it has made. Who is in no hurry to let others have theirs takes it at once.
"""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]


def at_once(steps: Steps[T]) -> T:
    """Go through all steps without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            made: T = stop.value
            return made
