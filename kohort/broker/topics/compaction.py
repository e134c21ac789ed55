"""Compacts the logs of topics with a compacting cleanup.policy, the dirtiest first.

Reading and rewriting run in the executor, a step at a time, so that stopping never waits for more
than one step; looking for work and putting finished segments in place are quick and run in the
loop's thread. Kafka's cleaner-offset-checkpoint stores the first dirty offset of each log; losing
it only costs examining clean records again.

A log whose compaction fails, because the disk is full or for any other reason, is retried with a
growing delay; Kafka would ignore the log until the next start, letting it grow. Other logs are
compacted meanwhile. An unexpected exception is treated in the same way, and is logged with its
traceback. Damage is left alone: a log is compacted up to the first damaged segment.

The code that compacts is imported for the first log with a compacting policy, because that takes 5
ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from kohort.broker.config.current import CurrentConfig
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.broker.storage.checkpoints.offset_checkpoint import (
    CLEANER_OFFSET_FILE,
    read_offsets,
    write_offsets,
)
from kohort.broker.storage.errors import CorruptBatchError, CorruptFileError
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.topics.topic import Topic
from kohort.protocol.errors import KafkaError

if TYPE_CHECKING:
    from kohort.broker.storage.compaction.cleaner import Compaction, CompactionPlan
    from kohort.broker.topics.partition import Partition

logger = logging.getLogger(__name__)

RETRY_MS_MIN: Final = 1000
RETRY_MS_MAX: Final = 600_000
"""The longest delay before a log is retried after a failure; the delay doubles up to this."""


class _Failure(NamedTuple):
    retry_ms: int
    """Delay before the next attempt."""
    retry_at_ms: int
    """Monotonic time of the next attempt."""


class Compactor:
    """Compacts the logs that have enough dirty records, one at a time."""

    def __init__(
        self,
        topics: Callable[[], list[Topic]],
        settings: CurrentConfig,
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
        """First dirty offset by (topic, partition); 0 if missing."""
        self._unchecked = set(self._clean_up_to)
        """Keys of `_clean_up_to` whose offsets have not been compared with the log yet."""
        self._failures: dict[Partition, _Failure] = {}
        self._damaged: set[Partition] = set()
        self._changed: asyncio.Event | None = None
        self.failure_count = 0
        """Failed compactions since the start."""

    @property
    def uncleanable_count(self) -> int:
        """Number of logs whose last compaction failed, or ended at a damaged segment."""
        return sum(
            partition.failure is None and "compact" in partition.config.cleanup_policy
            for partition in self._damaged.union(self._failures)
        )

    async def run(self) -> None:
        """Compact one log after another until cancelled; sleep while no log needs it."""
        settings = self._settings
        changed = self._changed
        if changed is None:
            changed = self._changed = asyncio.Event()
            settings.on_change(changed.set)
        while True:
            changed.clear()
            if not (settings.config.log_cleaner_enable and await self.compact_one()):
                # A change of the settings ends the sleep, because it may shorten the backoff;
                # Kafka's cleaners also start right after a change.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(settings.config.log_cleaner_backoff_ms / 1000):
                        await changed.wait()

    def forget(self, names: Iterable[str]) -> None:
        """Forget deleted topics: a new topic of the same name is dirty from its start."""
        gone = set(names)
        for key in [key for key in self._clean_up_to if key[0] in gone]:
            del self._clean_up_to[key]
        self._failures = {
            partition: failure
            for partition, failure in self._failures.items()
            if partition.topic_name not in gone
        }
        self._damaged = {
            partition for partition in self._damaged if partition.topic_name not in gone
        }

    async def compact_one(self) -> bool:
        """Compact the log that needs it most; return whether there was one."""
        partition = await self._dirtiest()
        # Planned again: segments may have been deleted while other logs were examined.
        plan = None if partition is None else self._plan(partition)
        if partition is None or plan is None:
            return False
        try:
            clean_up_to = await self._compact(partition, plan)
        except CorruptBatchError as error:
            # The damaged segment is marked, so that later plans end before it.
            self.failure_count += 1
            self._damaged.add(partition)
            logger.warning("%r is compacted only up to its damaged part: %s", partition, error)
        except Exception as error:  # noqa: BLE001 - noted with its traceback.
            self._note_failure(partition, error)
        else:
            if partition.failure is None:
                self._clean_up_to[partition.topic_name, partition.index] = clean_up_to
                await self._write_checkpoint()
            if self._failures.pop(partition, None) is not None:
                logger.info("%r is compacted again", partition)
        return True

    async def _dirtiest(self) -> Partition | None:
        best: Partition | None = None
        best_ratio = -1.0
        time_slice = Slice(self._clock)
        for topic in self._topics():
            if "compact" not in topic.config.cleanup_policy:
                continue
            for partition in list(topic.partitions.opened()):
                plan = self._plan(partition)
                if plan is not None and plan.dirty_ratio > best_ratio:
                    best, best_ratio = partition, plan.dirty_ratio
                await time_slice.pause()
        return best

    def _plan(self, partition: Partition) -> CompactionPlan | None:
        from kohort.broker.storage.compaction.cleaner import plan_compaction  # noqa: PLC0415

        failure = self._failures.get(partition)
        is_waiting = failure is not None and self._clock.monotonic_ms() < failure.retry_at_ms
        if partition.failure is not None or is_waiting:
            return None
        log, wall_ms = partition.log, self._clock.wall_ms()
        first_dirty_offset = self._first_dirty_offset(partition)
        try:
            # Plan up to the high watermark first: the last stable offset, which may have to be read
            # from files, is needed only if there is something to compact.
            plan = plan_compaction(
                log,
                first_dirty_offset=first_dirty_offset,
                up_to_offset=partition.high_watermark,
                wall_ms=wall_ms,
            )
            stable = partition.last_stable_offset if plan is not None else 0
            if plan is not None and plan.end_offset > stable:
                plan = plan_compaction(
                    log,
                    first_dirty_offset=first_dirty_offset,
                    up_to_offset=stable,
                    wall_ms=wall_ms,
                )
        except Exception as error:  # noqa: BLE001 - noted with its traceback.
            self._note_failure(partition, error)
            return None
        return plan

    def _first_dirty_offset(self, partition: Partition) -> int:
        key = partition.topic_name, partition.index
        if key in self._unchecked:
            self._unchecked.discard(key)
            if self._clean_up_to.get(key, 0) > partition.log.opened_end_offset:
                # The log ended below the offset when it was opened, so it was truncated or
                # recreated: all later records are dirty.
                del self._clean_up_to[key]
        return self._clean_up_to.get(key, 0)

    async def _compact(self, partition: Partition, plan: CompactionPlan) -> int:
        """Compact a log; return its first dirty offset. Raises StorageError, CorruptBatchError."""
        from kohort.broker.storage.compaction.cleaner import Compaction  # noqa: PLC0415
        from kohort.broker.topics.partition_reads import repair_indexes  # noqa: PLC0415

        await repair_indexes(partition.log, plan.segments[0].base_offset, self._executor)
        compaction = Compaction(
            partition.log,
            plan,
            memory_bytes=self._settings.config.log_cleaner_dedupe_buffer_size,
            wall_ms=self._clock.wall_ms(),
        )
        try:
            while await self._step(compaction):
                compaction.swap(wall_ms=self._clock.wall_ms())
        finally:
            compaction.close()
        return compaction.cleaned_up_to

    async def _step(self, compaction: Compaction) -> bool:
        loop = asyncio.get_running_loop()
        step = loop.run_in_executor(self._executor, compaction.work)
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            # The thread must finish the step before the compaction is closed.
            await asyncio.wait([step])
            raise

    def _note_failure(self, partition: Partition, error: Exception) -> None:
        if partition.log.failed:
            self._failures.pop(partition, None)
            if partition.failure is None:
                partition.take_offline(str(error))
            return
        self.failure_count += 1
        before = self._failures.get(partition)
        retry_ms = max(RETRY_MS_MIN, self._settings.config.log_cleaner_backoff_ms)
        if before is not None:
            retry_ms = max(retry_ms, 2 * before.retry_ms)
        retry_ms = min(retry_ms, RETRY_MS_MAX)
        self._failures[partition] = _Failure(retry_ms, self._clock.monotonic_ms() + retry_ms)
        text = "%r: compaction failed, next try in %d s: %s"
        values = (partition, retry_ms // 1000, error)
        if isinstance(error, KafkaError):
            logger.warning(text, *values)
        else:
            logger.error(text, *values, exc_info=error)

    def _read_checkpoint(self) -> dict[tuple[str, int], int]:
        try:
            return read_offsets(self._files, self._root, CLEANER_OFFSET_FILE)
        except (CorruptFileError, OSError) as error:
            logger.warning("%s; compaction starts from the beginning", error)
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
