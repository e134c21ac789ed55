"""Producer ids, handed out from blocks, so that only one in a thousand costs a write to disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

BLOCK_SIZE: Final = 1000
"""Ids in a block, as Kafka's controller gives them to its brokers."""


class ProducerIds:
    """Gives every id once. What is left of a block when the broker ends is never used."""

    def __init__(self, allocate: Callable[[int], range]) -> None:
        self._allocate = allocate
        self._block: Iterator[int] = iter(())

    def next(self) -> int:
        """A fresh id. Raises StorageError if a block is needed and cannot be stored."""
        for producer_id in self._block:
            return producer_id
        self._block = iter(self._allocate(BLOCK_SIZE))
        return next(self._block)
