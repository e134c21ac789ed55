"""Processing many rows within memory: batches of keys, and a pause of the garbage collector."""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

K = TypeVar("K")


def batched(weights: Mapping[K, int], most: int) -> Iterator[list[K]]:
    """Lists of the keys in order, each with a total weight of at most `most`, or a single key."""
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
