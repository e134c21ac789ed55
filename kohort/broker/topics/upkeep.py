"""Periodic work on logs: retention, compaction, flush.ms, checkpoints, expiry.

Each kind of work is a task of its own: an error interrupts only that task. Work on a log that may
be appended to runs on the loop's thread, in slices; fsyncs and the removal of files run in the
executor. A partition whose log fails is taken offline, other errors are logged, and work on other
partitions continues.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Final

from kohort.broker.config.current import CurrentConfig
from kohort.broker.config.settings import LONG_MAX
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.broker.storage.errors import StorageError
from kohort.broker.topics.topic import Topic

if TYPE_CHECKING:
    from kohort.broker.storage.log.log import PartitionLog
    from kohort.broker.topics.partition import Partition

logger = logging.getLogger(__name__)

FIRST_RETENTION_MS: Final = 30_000
"""Kafka's log.initial.task.delay.ms: a broker that starts has more urgent work."""
FILE_REMOVAL_INTERVAL_MS: Final = 30_000
"""Maximum delay after file.delete.delay.ms before the files of deleted segments are removed."""
FLUSH_TICK_MS_MIN: Final = 5
FLUSH_TICK_MS_MAX: Final = 1000
CHECKPOINT_INTERVAL_MS_MIN: Final = 1000


class Upkeep:
    """Maintains the logs of all topics until it is cancelled."""

    def __init__(
        self,
        topics: Callable[[], list[Topic]],
        settings: CurrentConfig,
        write_checkpoints: Callable[[], Awaitable[None]],
        *,
        clock: Clock,
        executor: Executor,
        background_tasks: BackgroundTasks,
    ) -> None:
        self._topics = topics
        self._settings = settings
        self._write_checkpoints = write_checkpoints
        self._clock = clock
        self._executor = executor
        self._background_tasks = background_tasks
        self._tasks: list[asyncio.Task[None]] = []
        self._configs_changed = asyncio.Event()
        self._unflushed_since: dict[Partition, int] = {}
        """Monotonic time at which unflushed records were first seen."""

    def note_configs_changed(self) -> None:
        """Record that a topic was created or its configs changed: flush.ms may be set now."""
        self._configs_changed.set()

    def start(self, compact: Callable[[], Coroutine[None, None, None]]) -> None:
        start = self._background_tasks.start
        self._tasks = [
            start("compaction", compact),
            start("retention", self._retain),
            start("flush.ms", self._flush),
            start("checkpoints", self._checkpoint),
            start("removal of deleted segments", self._remove_files),
            start("expiry of producers", self._expire_producers),
        ]

    async def close(self) -> None:
        """Cancel all tasks, and return when they have ended."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def enforce_retention(self, partition: Partition) -> None:
        """Delete segments beyond the topic's retention time or size."""
        _guarded(
            partition,
            lambda: partition.log.enforce_retention(
                wall_ms=self._clock.wall_ms(), up_to_offset=partition.high_watermark
            ),
        )

    def forget(self, partition: Partition) -> None:
        self._unflushed_since.pop(partition, None)

    async def _retain(self) -> None:
        await asyncio.sleep(FIRST_RETENTION_MS / 1000)
        while True:
            await self._visit(self.enforce_retention)
            await asyncio.sleep(self._settings.config.log_retention_check_interval_ms / 1000)

    async def _expire_producers(self) -> None:
        while True:
            config = self._settings.config
            await asyncio.sleep(config.producer_id_expiration_check_interval_ms / 1000)
            await self._visit(self._expire_producers_of)

    def _expire_producers_of(self, partition: Partition) -> None:
        if partition.log.log_end_offset == 0:
            return  # Nothing was ever written here, and opening it would read files.
        expiration_ms = self._settings.config.producer_id_expiration_ms
        _guarded(
            partition,
            lambda: partition.log.producers.expire(self._clock.wall_ms(), expiration_ms),
        )

    async def _flush(self) -> None:
        while True:
            self._configs_changed.clear()
            time_slice = Slice(self._clock)
            shortest_ms = LONG_MAX
            for topic in self._topics():
                shortest_ms = min(shortest_ms, topic.config.flush_ms)
                await time_slice.pause()
            if shortest_ms == LONG_MAX:
                self._unflushed_since.clear()
                await self._configs_changed.wait()
                continue
            await self._flush_due()
            tick_ms = min(max(shortest_ms // 4, FLUSH_TICK_MS_MIN), FLUSH_TICK_MS_MAX)
            await asyncio.sleep(tick_ms / 1000)

    async def _flush_due(self) -> None:
        """Start a flush of every partition whose oldest unflushed record has reached flush.ms."""
        now_ms = self._clock.monotonic_ms()
        time_slice = Slice(self._clock)
        for topic in self._topics():
            if topic.config.flush_ms != LONG_MAX:
                for partition in topic.partitions.opened():
                    _guarded(partition, partial(self._flush_if_due, partition, now_ms))
                    await time_slice.pause()
            await time_slice.pause()

    def _flush_if_due(self, partition: Partition, now_ms: int) -> None:
        log = partition.log
        if partition.failure is not None or log.flushed_offset >= log.log_end_offset:
            self._unflushed_since.pop(partition, None)
        elif now_ms - self._unflushed_since.setdefault(partition, now_ms) >= (
            partition.config.flush_ms
        ):
            del self._unflushed_since[partition]
            partition.start_flush()

    async def _checkpoint(self) -> None:
        while True:
            config = self._settings.config
            interval_ms = min(
                config.log_flush_offset_checkpoint_interval_ms,
                config.log_flush_start_offset_checkpoint_interval_ms,
            )
            await asyncio.sleep(max(interval_ms, CHECKPOINT_INTERVAL_MS_MIN) / 1000)
            try:
                await self._write_checkpoints()
            except StorageError as error:
                # The older checkpoint stays: recovery takes longer, but no records are lost.
                logger.warning("%s", error)

    async def _remove_files(self) -> None:
        while True:
            await asyncio.sleep(FILE_REMOVAL_INTERVAL_MS / 1000)
            await self._remove_deleted_files()

    async def _remove_deleted_files(self) -> None:
        logs: list[PartitionLog] = []
        await self._visit(lambda partition: logs.append(partition.log))
        await asyncio.get_running_loop().run_in_executor(
            self._executor, _remove_deleted_files, logs, self._clock.wall_ms()
        )

    async def _visit(self, work: Callable[[Partition], None]) -> None:
        time_slice = Slice(self._clock)
        for topic in self._topics():
            for partition in topic.partitions.opened():
                if partition.failure is None:
                    work(partition)
                await time_slice.pause()
            await time_slice.pause()


def _remove_deleted_files(logs: list[PartitionLog], wall_ms: int) -> None:
    for log in logs:
        try:
            log.remove_deleted_files(wall_ms=wall_ms)
        except Exception:
            logger.exception("Internal error in the removal of deleted segments of %r", log)


def _guarded(partition: Partition, work: Callable[[], object]) -> None:
    """Do work on one partition's log. Catch every exception, so that other work continues."""
    try:
        work()
    except StorageError as error:
        if partition.log.failed:
            partition.take_offline(str(error))
        else:
            logger.warning("%r: %s", partition, error)
    except Exception:
        logger.exception("upkeep of %r", partition)
