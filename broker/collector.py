"""The garbage collector, in steps that are short however much lives.

CPython's collector walks all objects of an age in one go, and the oldest age is everything: with
100,000 members one look at it stops the loop for a quarter of a second. Nearly all of what is old
stays, and requests leave no cycles behind. So what has survived a look at the middle age is set
aside (`gc.freeze`) and not looked at again: no look has more than what has come lately, some ten
thousand objects, and nothing is looked at more than twice. What is set aside is freed as ever when
nothing refers to it; only a cycle among those objects has to wait for `collect_all`, which is for
moments when little lives.
"""

import gc
from typing import Final

THRESHOLDS: Final = (5_000, 1, 10)
"""Young objects between two collections, and collections of one age between two of the next."""

YOUNGEST: Final = 0

_DEFAULTS: Final = (700, 10, 10)
"""CPython's."""


def collect_in_steps() -> None:
    """For the whole process, from now on. What there is now is set aside unseen."""
    if _set_aside not in gc.callbacks:
        gc.callbacks.append(_set_aside)
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def collect_as_usual() -> None:
    """Undo `collect_in_steps`; for those who run brokers within a longer life."""
    if _set_aside in gc.callbacks:
        gc.callbacks.remove(_set_aside)
    gc.set_threshold(*_DEFAULTS)
    gc.unfreeze()


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
