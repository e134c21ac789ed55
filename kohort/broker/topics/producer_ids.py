"""Producer ids, allocated from blocks, so that only one in a thousand costs a write to disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

BLOCK_SIZE: Final = 1000
"""Ids in a block, as Kafka's controller allocates them to brokers."""


class ProducerIds:
    """Allocates every id once. The rest of a block is never used after the broker stops."""

    def __init__(self, allocate: Callable[[int], range]) -> None:
        self._allocate = allocate
        self._block: Iterator[int] = iter(())

    def next(self) -> int:
        """Return a new id. Raises StorageError if a new block is needed and cannot be stored."""
        for producer_id in self._block:
            return producer_id
        self._block = iter(self._allocate(BLOCK_SIZE))
        return next(self._block)
