"""Incremental garbage collection, with pauses that are short however many objects live.

CPython's collector traverses all objects of a generation at once, and the oldest generation is
everything: with 100,000 members one collection stops the loop for a quarter of a second. Nearly all
old objects stay alive, and requests create no cycles. So objects that have survived a collection of
the middle generation are frozen (`gc.freeze`) and not traversed again: a collection traverses only
the recent objects, some ten thousand, and no object is traversed more than twice. Frozen objects
are freed as usual when nothing refers to them; only a cycle among them waits for `collect_all`,
which runs while few objects live.

When thousands of members join or leave, the interpreter's own count of young objects is useless: it
counts allocations minus deallocations, so while old objects are freed as fast as new objects are
created, hundreds of thousands of young objects accumulate unnoticed. `IterationCollector` also
counts the actual objects, a few times a second, and collects them between two loop iterations
instead of in the middle of one.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

THRESHOLDS: Final = (5_000, 1, 10)
"""The youngest generation is collected after this many new objects; an older one after this many
collections of the next younger generation."""

BURST_THRESHOLDS: Final = (50_000, 1, 10)
"""Thresholds while an `IterationCollector` exists. They exceed the number of objects that an event
loop iteration creates, so that the interpreter itself seldom collects."""

YOUNG_COUNT_MIN: Final = 1_000
"""Minimum number of young objects to collect; fewer are left to the next call."""

CHECKS_PER_COUNT: Final = 10
"""Calls of `check` per count of the young objects: counting takes longer than a collection."""

YOUNGEST: Final = 0
MIDDLE: Final = 1

_thresholds_before = gc.get_threshold()
"""The thresholds replaced by `collect_in_steps`."""


@contextmanager
def nothing_collected() -> Iterator[None]:
    """A context without collections, for imports and the start of a broker: their objects live
    long, and are frozen without having been traversed.

    Imports create some 50,000 objects; sixty collections during them would take 5 % of the start.
    0.8 MiB of the frozen objects is garbage, such as classes that a decorator replaced.
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
    """Switch the process to incremental collection; existing objects are frozen."""
    global _thresholds_before  # noqa: PLW0603 - the garbage collector is global, too.
    if _freeze_survivors not in gc.callbacks:
        _thresholds_before = gc.get_threshold()
        gc.callbacks.append(_freeze_survivors)
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)


def collect_as_usual() -> None:
    """Undo `collect_in_steps`; for programs that run brokers only part of the time."""
    if _freeze_survivors in gc.callbacks:
        gc.callbacks.remove(_freeze_survivors)
        gc.set_threshold(*_thresholds_before)
    gc.unfreeze()


class IterationCollector:
    """Collects young objects in `check`, while very many objects exist; see `collect_in_steps`."""

    def __init__(self) -> None:
        gc.set_threshold(*BURST_THRESHOLDS)
        self._uncounted_checks = 0

    def check(self) -> int:
        """Collect young objects if there are `YOUNG_COUNT_MIN`; return a lower bound for the number
        of traversed objects. Call this many times a second: whenever the loop may have created some
        thousand objects.
        """
        # The interpreter's count of young objects may be too low, but never too high.
        count = gc.get_count()[YOUNGEST]
        if count < YOUNG_COUNT_MIN:
            self._uncounted_checks += 1
            if self._uncounted_checks < CHECKS_PER_COUNT:
                return 0
            count = len(gc.get_objects(generation=YOUNGEST))
        self._uncounted_checks = 0
        if count < YOUNG_COUNT_MIN:
            return 0
        gc.collect(MIDDLE)  # Freezes the survivors.
        return count

    def stop(self) -> None:
        """Let the interpreter trigger collections again."""
        gc.set_threshold(*THRESHOLDS)


def collect_recent() -> None:
    """Collect objects that are not frozen, and clear the interpreter's free lists."""
    gc.collect()


def collect_all() -> None:
    """Collect everything: some 15 ms for an idle broker's objects, more with each live object."""
    gc.unfreeze()
    gc.collect()  # Freezes the survivors.


def _freeze_survivors(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] != YOUNGEST:
        gc.freeze()
