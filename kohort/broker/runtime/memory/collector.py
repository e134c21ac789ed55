"""The garbage collector, in steps that are short however much lives.

CPython's collector walks all objects of an age in one go, and the oldest age is everything: with
100,000 members one look at it stops the loop for a quarter of a second. Nearly all of what is old
stays, and requests leave no cycles behind. So what has survived a look at the middle age is set
aside (`gc.freeze`) and not looked at again: no look has more than what has come lately, some ten
thousand objects, and nothing is looked at more than twice. What is set aside is freed as ever when
nothing refers to it; only a cycle among those objects has to wait for `collect_all`, which is for
moments when little lives.

When thousands of members come or go, the interpreter's own count of what is young is of no use: it
counts what is made less what is freed, so while old objects go as fast as new ones come, hundreds
of thousands of young ones gather unseen. `TurnCollector` counts what is there, and looks at it
between two turns of the loop instead of in the middle of one.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

THRESHOLDS: Final = (5_000, 1, 10)
"""Young objects between two collections, and collections of one age between two of the next."""

CROWD_THRESHOLDS: Final = (50_000, 1, 10)
"""More than a turn makes: while `TurnCollector` looks, the interpreter seldom has to."""

YOUNG_WORTH_A_LOOK: Final = 1_000
"""Fewer are left to the next look."""

YOUNG_BEFORE_SET_ASIDE: Final = 2_500
"""After looks at so many, those that have survived are looked at once more and set aside."""

YOUNGEST: Final = 0
MIDDLE: Final = 1

_DEFAULTS: Final = (700, 10, 10)
"""CPython's."""


@contextmanager
def nothing_collected() -> Iterator[None]:
    """For imports, and for the start of a broker: what they make stays, and is set aside unseen.

    Imports make some 50,000 objects, and sixty looks at them on the way take a twentieth of a
    start. 0.8 MiB of what is set aside is of no use, such as classes that a decorator replaced.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def collect_in_steps() -> None:
    """For the whole process, from now on. What there is now is set aside unseen."""
    if _set_aside not in gc.callbacks:
        gc.callbacks.append(_set_aside)
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def collect_as_usual() -> None:
    """Undo `collect_in_steps`; for programs that run brokers within a longer life."""
    if _set_aside in gc.callbacks:
        gc.callbacks.remove(_set_aside)
    gc.set_threshold(*_DEFAULTS)
    gc.unfreeze()


class TurnCollector:
    """For a time with very many objects, while `collect_in_steps` is in force."""

    def __init__(self) -> None:
        gc.set_threshold(*CROWD_THRESHOLDS)
        self._seen = 0
        """Young objects that were looked at since some were set aside."""

    def look(self) -> int:
        """Look at what is young now, if it is worth it; returns at how many objects. To be called
        many times a second: as often as the loop can make some thousand objects.
        """
        count = len(gc.get_objects(generation=YOUNGEST))
        if count < YOUNG_WORTH_A_LOOK:
            return 0
        self._seen += count
        if self._seen >= YOUNG_BEFORE_SET_ASIDE:
            self._seen = 0
            gc.collect(MIDDLE)
        else:
            gc.collect(YOUNGEST)
        return count

    def stop(self) -> None:
        """The interpreter counts again."""
        gc.set_threshold(*THRESHOLDS)


def collect_recent() -> None:
    """Look at what was not set aside yet, and empty the interpreter's lists of spare objects."""
    gc.collect()


def collect_all() -> None:
    """Look at everything: some 15 ms for an idle broker's objects, more with each that lives."""
    gc.unfreeze()
    gc.collect()  # Sets aside what is left of them.


def _set_aside(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] != YOUNGEST:
        gc.freeze()
