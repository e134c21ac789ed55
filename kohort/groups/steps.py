"""Long work as a generator that yields between its steps and returns the result. A step is not
interrupted; most requests are one step. The driver of a generator decides when other work runs in
between (`kohort.broker.runtime.slices`), or runs all steps at once.
"""

from collections.abc import Generator
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]

FEW: Final = 100
"""Items per step if each takes a microsecond or less: pausing and resuming would cost as much as
the work."""

SOME: Final = 20
"""Items per step if each takes about ten microseconds."""

LARGE: Final = 1_000
"""Number of topics or partitions above which reporting, creating records and encoding are separate
steps: each takes some milliseconds."""


def at_once(steps: Steps[T]) -> T:
    """Run all steps without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            made: T = stop.value
            return made
