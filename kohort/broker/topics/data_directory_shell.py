"""Runs the blocking work on the data directory in threads, for callers on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

from kohort.broker.runtime.slices import yield_to_loop
from kohort.broker.topics.data_directory import DataDirectory, close_logs
from kohort.broker.topics.topic import Catalog

if TYPE_CHECKING:
    from kohort.broker.topics.partition import Partition

P = ParamSpec("P")
T = TypeVar("T")

CLOSING_THREADS: Final = 4

NOTED_AT_ONCE: Final = 500
"""Number of partitions whose checkpoint values are set per slice, in three microseconds each."""


class DataDirectoryShell:
    """Runs the blocking work on the data directory `data` in an executor's threads."""

    def __init__(self, data: DataDirectory, catalog: Catalog, executor: Executor) -> None:
        self.data = data
        self._catalog = catalog
        self._executor = executor
        self._checkpointing = asyncio.Lock()
        self._removals: set[asyncio.Future[None]] = set()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work in another thread, and return or raise its result."""
        call = partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)

    async def write_checkpoints(self) -> None:
        """Write log start offsets and recovery points. Raises StorageError."""
        async with self._checkpointing:
            await self._note_offsets()
            directories = self.data.directories
            await self.run(directories.write_checkpoints, *directories.notes())

    def remove_later(self, refuse: Sequence[Path]) -> None:
        """Remove the unused directories `refuse` in the background; `close` waits for that."""
        if refuse:
            loop = asyncio.get_running_loop()
            removal = loop.run_in_executor(self._executor, self.data.directories.remove, refuse)
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)

    async def close(self) -> None:
        """Make everything durable; on success, mark the shutdown as clean. Raises StorageError."""
        async with self._checkpointing:
            partitions = list(self.opened())
            for partition in partitions:
                await partition.wait_flushed()
            logs = [partition.log for partition in partitions]
            # Close logs concurrently: the file system can combine the fsyncs for which they wait.
            closed = await asyncio.gather(
                *(
                    self.run(close_logs, logs[start::CLOSING_THREADS])
                    for start in range(CLOSING_THREADS)
                )
            )
            await self._note_offsets()
            if self._removals:
                await asyncio.wait(self._removals)
            await self.run(self.data.close, is_clean=all(closed))

    def opened(self) -> Iterator[Partition]:
        for topic in self._catalog.all():
            yield from topic.partitions.opened()

    async def _note_offsets(self) -> None:
        """Set the checkpoint values of all open logs, in slices."""
        count = 0
        for topic in list(self._catalog.all()):
            for partition in topic.partitions.opened():
                if self._catalog.get_by_id(topic.topic_id) is not topic:
                    break  # Deleted meanwhile; a new topic may get its name.
                if not partition.log.failed or partition.log.segments:
                    self.data.directories.note(
                        partition.log, partition.topic_name, partition.index, partition.leader_epoch
                    )
                count += 1
                if count % NOTED_AT_ONCE == 0:
                    await yield_to_loop()
            count += 1
            if count % NOTED_AT_ONCE == 0:
                await yield_to_loop()
