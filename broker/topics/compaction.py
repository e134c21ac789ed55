"""Compacts the logs of topics whose cleanup.policy says so, the dirtiest first.

Reading and rewriting go on in the executor, a step at a time, so that a stop never waits for more
than one; looking for work and putting finished segments in place are quick and belong to the loop's
thread. How far each log is clean is noted in Kafka's cleaner-offset-checkpoint; losing it costs a
second look at records that are clean already. A log that cannot be compacted is left alone until
the next start, as Kafka does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path

from broker.clock import Clock
from broker.config.current import CurrentConfig
from broker.storage.cleaner import Compaction, CompactionPlan, plan_compaction
from broker.storage.errors import CorruptFileError, StorageError
from broker.storage.filesystem import FileSystem
from broker.storage.offset_checkpoint import CLEANER_OFFSET_FILE, read_offsets, write_offsets
from broker.topics.partition import Partition
from broker.topics.topic import Topic

logger = logging.getLogger(__name__)


class Compactor:
    """Looks for compacted logs with enough to do; one at a time."""

    def __init__(
        self,
        topics: Callable[[], list[Topic]],
        settings: Callable[[], CurrentConfig],
        files: FileSystem,
        root: Path,
        *,
        clock: Clock,
        executor: Executor,
    ) -> None:
        self._topics = topics
        self._settings = settings
        self._files = files
        self._root = str(root)
        self._clock = clock
        self._executor = executor
        self._clean_up_to = self._read_checkpoint()
        """First dirty offset by (topic, partition); 0 for what is not in it."""
        self._left_alone: set[Partition] = set()

    async def run(self) -> None:
        """Work until cancelled; rest when there is nothing to do."""
        settings = self._settings()
        changed = asyncio.Event()
        settings.on_change(changed.set)
        while True:
            changed.clear()
            if not (settings.config.log_cleaner_enable and await self.compact_one()):
                # A change may be to a shorter rest, and Kafka's cleaners begin at once after one.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(settings.config.log_cleaner_backoff_ms / 1000):
                        await changed.wait()

    def forget(self, names: Iterable[str]) -> None:
        """The topics are deleted; a new one of the same name begins dirty."""
        gone = set(names)
        for key in [key for key in self._clean_up_to if key[0] in gone]:
            del self._clean_up_to[key]
        self._left_alone = {one for one in self._left_alone if one.topic_name not in gone}

    async def compact_one(self) -> bool:
        """Compact the log that needs it most; whether there was one."""
        found = self._dirtiest()
        if found is None:
            return False
        partition, plan = found
        try:
            clean_up_to = await self._compact(partition, plan)
            if clean_up_to is None or partition.failure is not None:
                return True
            if clean_up_to <= plan.first_dirty_offset:
                raise StorageError(f"{partition!r}: not one batch fits into the dedupe buffer")
            self._clean_up_to[partition.topic_name, partition.index] = clean_up_to
            await self._write_checkpoint()
        except StorageError as error:
            self._leave_alone(partition, error)
        return True

    def _dirtiest(self) -> tuple[Partition, CompactionPlan] | None:
        best: tuple[Partition, CompactionPlan] | None = None
        for topic in self._topics():
            if "compact" not in topic.config.cleanup_policy:
                continue
            for partition in topic.partitions.opened():
                plan = self._plan(partition)
                if plan is not None and (best is None or plan.dirty_ratio > best[1].dirty_ratio):
                    best = partition, plan
        return best

    def _plan(self, partition: Partition) -> CompactionPlan | None:
        if partition.failure is not None or partition in self._left_alone:
            return None
        try:
            return plan_compaction(
                partition.log,
                first_dirty_offset=self._clean_up_to.get(
                    (partition.topic_name, partition.index), 0
                ),
                up_to_offset=partition.high_watermark,
                wall_ms=self._clock.wall_ms(),
            )
        except StorageError as error:
            self._leave_alone(partition, error)
            return None

    async def _compact(self, partition: Partition, plan: CompactionPlan) -> int | None:
        """Do what is planned; returns up to where the log is clean then.

        None if retention has taken a segment away before it was read: another plan is needed.
        Raises StorageError.
        """
        compaction = Compaction(
            partition.log,
            plan,
            memory_bytes=self._settings().config.log_cleaner_dedupe_buffer_size,
            wall_ms=self._clock.wall_ms(),
        )
        try:
            try:
                while await self._step(compaction):
                    pass
            except StorageError:
                if partition.log.failed or not any(one.is_deleted for one in plan.segments):
                    raise
                return None
            for _ in iter(compaction.swap_next, False):
                await asyncio.sleep(0)
        finally:
            compaction.close()
        return compaction.cleaned_up_to

    async def _step(self, compaction: Compaction) -> bool:
        loop = asyncio.get_running_loop()
        step = loop.run_in_executor(self._executor, compaction.work)
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            # The thread must be out of it before it can be closed.
            await asyncio.wait([step])
            raise

    def _leave_alone(self, partition: Partition, error: StorageError) -> None:
        if partition.log.failed:
            if partition.failure is None:
                partition.take_offline(str(error))
            return
        logger.warning("%r is not compacted until the next start: %s", partition, error)
        self._left_alone.add(partition)

    def _read_checkpoint(self) -> dict[tuple[str, int], int]:
        try:
            return read_offsets(self._files, self._root, CLEANER_OFFSET_FILE)
        except (CorruptFileError, OSError) as error:
            logger.warning("%s; compaction looks at everything again", error)
            return {}

    async def _write_checkpoint(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(
                self._executor,
                write_offsets,
                self._files,
                self._root,
                CLEANER_OFFSET_FILE,
                dict(self._clean_up_to),
            )
        except OSError as error:
            logger.warning("%s cannot be written: %s", CLEANER_OFFSET_FILE, error)
