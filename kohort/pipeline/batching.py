"""Keys of a known weight, so many at a time as fit into memory together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

K = TypeVar("K")


def batched(weights: Mapping[K, int], most: int) -> Iterator[list[K]]:
    """The keys in their order, in lists that weigh no more than `most`, or are of one key."""
    held: list[K] = []
    total = 0
    for key, weight in weights.items():
        if held and total + weight > most:
            yield held
            held, total = [], 0
        held.append(key)
        total += weight
    if held:
        yield held
