"""An in-memory log whose appends can be delayed and made to fail, like those of a disk."""

import asyncio
from collections.abc import Awaitable
from typing import Final

from kohort.protocol.errors import KafkaError

PARTITION_COUNT_DEFAULT: Final = 50


class MemoryLog:
    """Base of the in-memory logs of groups and of transactional ids. `hold` and `release` delay
    appends, `failure` makes them fail.
    """

    def __init__(self, partition_count: int = PARTITION_COUNT_DEFAULT) -> None:
        self.batches: list[list[bytes]] = [[] for _ in range(partition_count)]
        """Durable batches by partition."""
        self.failure: KafkaError | None = None
        """Raised by every append that begins or is released while this is set."""
        self.append_count = 0
        """Number of started appends."""
        self._held: list[tuple[asyncio.Future[None], int, bytes]] | None = None

    @property
    def partition_count(self) -> int:
        return len(self.batches)

    @property
    def batch_count(self) -> int:
        """Number of batches in all partitions."""
        return sum(map(len, self.batches))

    @property
    def held_count(self) -> int:
        """Number of waiting appends."""
        return len(self._held or [])

    def prepare(self) -> Awaitable[None] | None:
        """Return None: the topic always exists."""
        return None

    def append_batch(self, partition: int, batch: bytes) -> Awaitable[None] | None:
        """Append a batch; durable at once unless held."""
        self.append_count += 1
        if self._held is None:
            self._store(partition, batch)
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append((future, partition, batch))
        return asyncio.shield(future)

    def hold(self) -> None:
        """Make appends from now on wait for `release`."""
        if self._held is None:
            self._held = []

    def release_one(self) -> None:
        """Let the first waiting append become durable, or fail."""
        assert self._held
        self._settle(*self._held.pop(0))

    def release(self) -> None:
        """Let waiting appends become durable, or fail; later ones do so at once."""
        held, self._held = self._held or [], None
        for append in held:
            self._settle(*append)

    def _settle(self, future: asyncio.Future[None], partition: int, batch: bytes) -> None:
        try:
            self._store(partition, batch)
        except KafkaError as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    def _store(self, partition: int, batch: bytes) -> None:
        if self.failure is not None:
            raise self.failure
        self.batches[partition].append(batch)
