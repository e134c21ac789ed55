"""Processes many rows in bounded memory: in batches, and with the garbage collector paused."""

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


def batched(weights: Mapping[K, int], most: int) -> Iterator[list[K]]:
    """Divide the keys, in order, into lists with a total weight of at most `most`; a key that is
    heavier than that has a list of its own.
    """
    batch: list[K] = []
    total = 0
    for key, weight in weights.items():
        if batch and total + weight > most:
            yield batch
            batch, total = [], 0
        batch.append(key)
        total += weight
    if batch:
        yield batch


def cut(rows: Iterable[T], size_of: Callable[[T], int], count: int, size: int) -> Iterator[list[T]]:
    """Yield lists of the rows in order. A list is complete as soon as it has `count` rows, or a
    total size of `size`.
    """
    held: list[T] = []
    total = 0
    for row in rows:
        held.append(row)
        total += size_of(row)
        if len(held) >= count or total >= size:
            yield held
            held, total = [], 0
    if held:
        yield held


@contextmanager
def without_gc() -> Iterator[None]:
    """Disables the cyclic garbage collector.

    The rows of a batch are millions of objects without cycles that live until the batch is done.
    Repeated full collections would take almost half of the batch's time and free nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
