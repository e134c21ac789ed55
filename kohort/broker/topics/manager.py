"""Opens, finds, maintains and closes the topics of the broker.

Blocking work runs in the executor, except opening a partition that was closed cleanly, which takes
a tenth of a millisecond. A disk failure in one partition takes only that partition offline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kohort.broker.config import LoadedConfig
from kohort.broker.config.current import CurrentConfig
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.clock import Clock
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.filesystem import OS_FILES, FileSystem
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.broker.topics.compaction import Compactor
from kohort.broker.topics.data_directory import DataDirectory
from kohort.broker.topics.data_directory_shell import DataDirectoryShell
from kohort.broker.topics.opening import Opener
from kohort.broker.topics.startup_progress import StartupProgress
from kohort.broker.topics.tail_cache import TailCache
from kohort.broker.topics.topic import Catalog, Topic
from kohort.broker.topics.upkeep import Upkeep
from kohort.formats.text import counted

if TYPE_CHECKING:
    from uuid import UUID

    from kohort.broker.topics.changes import TopicChanges
    from kohort.broker.topics.partition import Partition

BLOCK_SIZE: Final = 1000
"""Number of ids in a block: the same as in the blocks that Kafka's controller allocates."""


class ProducerIds:
    """Producer ids, allocated from blocks, so that only one in a thousand costs a write to disk.
    Every id is allocated once; the rest of a block is unused after the broker stops.
    """

    def __init__(self, allocate: Callable[[int], range]) -> None:
        self._allocate = allocate
        self._block: Iterator[int] = iter(())

    def next(self) -> int:
        """Return a new id. Raises StorageError if a new block of ids cannot be stored."""
        for producer_id in self._block:
            return producer_id
        self._block = iter(self._allocate(BLOCK_SIZE))
        return next(self._block)


RECOVERY_THREADS: Final = 4
"""Number of logs verified concurrently: with many small logs, verifying mostly waits for fsyncs."""

PROGRESS_S: Final = 10
"""Interval at which the progress of verifying logs is logged."""

logger = logging.getLogger(__name__)


class TopicManager:
    settings: CurrentConfig
    """The broker's current settings. Set by `start`, like the attributes declared below."""
    cluster_id: str
    compaction: Compactor
    disk: DataDirectoryShell
    """The data on disk: directories, checkpoints, the metadata store."""
    _opener: Opener
    _upkeep: Upkeep
    next_producer_id: Callable[[], int]
    """Returns an id that no producer ever had. Raises StorageError."""

    def __init__(
        self,
        loaded: LoadedConfig,
        *,
        clock: Clock,
        purgatory: Purgatory,
        executor: Executor,
        tail_cache: TailCache | None = None,
        files: FileSystem = OS_FILES,
        store: MetadataStore | None = None,
        new_uuid: Callable[[], UUID],
        background_tasks: BackgroundTasks | None = None,
        progress: StartupProgress | None = None,
    ) -> None:
        """``store`` replaces the database in the data directory, for simulations; ``new_uuid``
        creates the ids of topics; ``background_tasks`` runs the upkeep; ``progress`` counts the
        verified logs.
        """
        self.directory: Path = loaded.config.data_directory.absolute()
        self._loaded = loaded
        self._purgatory = purgatory
        self._executor = executor
        self._tail_cache = tail_cache or TailCache()
        self._files = files
        self._store = store
        self.clock = clock
        self._background_tasks = background_tasks or BackgroundTasks(clock)
        self._progress = progress or StartupProgress(clock)
        self.catalog = Catalog()
        self.get = self.catalog.get
        self.get_by_id = self.catalog.get_by_id
        self.all = self.catalog.all
        """`Catalog.all`, which returns every topic, oldest first."""
        self._new_uuid = new_uuid
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Open the data directory, whose lock the caller holds; verify its logs if necessary.

        Raises ConfigError, MetadataError or StorageError if the broker cannot start.
        """
        data = await asyncio.get_running_loop().run_in_executor(
            self._executor,
            partial(DataDirectory.open, wall_ms=self.clock.wall_ms()),
            self._loaded.config,
            self.directory,
            self._files,
            self._store,
        )
        self._make_parts(data)
        for record in data.store.topics():
            self.catalog.add(self._opener.topic(record))
        living = {topic.name for topic in self.all()}
        refuse = await self.disk.run(data.finish_deletions, living)
        await self._recover()
        # Removed before the checkpoints are written: on a full disk, this makes room for them.
        self.disk.remove_later(refuse)
        if not data.was_clean or data.directories.has_stale_notes:
            # Not after a clean stop: the checkpoints are still valid, and writing them takes seven
            # fsyncs.
            try:
                await self.disk.write_checkpoints()
            except StorageError as error:
                # If the disk is full, Upkeep tries again.
                logger.error("%s; the broker starts regardless", error)  # noqa: TRY400 - the text says it all.
        self.compaction = await self.disk.run(
            Compactor,
            self.all,
            self.settings,
            self._files,
            self.directory,
            clock=self.clock,
            executor=self._executor,
        )
        self._upkeep.start(self.compaction.run)

    def _make_parts(self, data: DataDirectory) -> None:
        self.disk = DataDirectoryShell(data, self.catalog, self._executor)
        self.cluster_id = data.store.cluster_id
        self.settings = CurrentConfig(
            self._loaded,
            for_this_broker=data.store.broker_configs(str(self._loaded.config.node_id)),
            for_all_brokers=data.store.broker_configs(""),
            for_groups=data.store.group_configs(),
        )
        self._opener = Opener(
            self.settings,
            data.directories,
            clock=self.clock,
            purgatory=self._purgatory,
            executor=self._executor,
            tail_cache=self._tail_cache,
        )
        self._upkeep = Upkeep(
            self.all,
            self.settings,
            self.disk.write_checkpoints,
            clock=self.clock,
            executor=self._executor,
            background_tasks=self._background_tasks,
        )
        self.next_producer_id = ProducerIds(data.store.allocate_producer_ids).next

    @cached_property
    def changes(self) -> TopicChanges:
        """Changes topics and configs. Imported on first use, because that takes 1 ms."""
        from kohort.broker.topics.changes import TopicChanges  # noqa: PLC0415

        changes = TopicChanges(
            self.catalog,
            self.disk,
            self._opener,
            self._upkeep,
            self.settings,
            clock=self.clock,
            new_uuid=self._new_uuid,
            under_way=self._changing,
        )
        changes.on_topics_deleted(self.compaction.forget)
        return changes

    async def close(self) -> None:
        """Flush and close all logs; on success, mark the shutdown as clean. Raises StorageError."""
        await self._upkeep.close()
        async with self._changing:
            await self.disk.close()

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self.catalog.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def is_on_disk(self, name: str, index: int) -> bool:
        """Whether a partition's directory exists; does not create it."""
        return self.disk.data.directories.exists(name, index)

    async def wait_flushed(self, timeout_ms: int) -> None:
        """Return when all flushes in progress have ended, or after the timeout."""
        flushes = {
            flush for partition in self.disk.opened() if (flush := partition.flush) is not None
        }
        if flushes:
            await asyncio.wait(flushes, timeout=timeout_ms / 1000)

    async def _recover(self) -> None:
        """Verify all partitions after an unclean shutdown, before any client is served."""
        unverified = await self.disk.run(self.disk.data.to_recover, self.all())
        if not unverified:
            return
        directories, progress = self.disk.data.directories, self._progress
        sizes = await self.disk.run(
            lambda: {
                (topic.name, index): directories.unverified_bytes(topic.name, index)
                for topic, index in unverified
            }
        )
        progress.begin_verifying(sizes)
        directories.on_verified = progress.verified
        logger.info(
            "The last stop was not clean; verifying %s, %.0f MB",
            counted(progress.partitions_total, "partition"),
            progress.bytes_total / 1e6,
        )
        chunks = (unverified[start::RECOVERY_THREADS] for start in range(RECOVERY_THREADS))
        work = asyncio.gather(
            *(self.disk.run(_open_all, chunk, progress) for chunk in chunks if chunk)
        )
        while not (await asyncio.wait([work], timeout=PROGRESS_S))[0]:
            logger.info("Still %s", progress.text())
        await work


def _open_all(partitions: Sequence[tuple[Topic, int]], progress: StartupProgress) -> None:
    for topic, index in partitions:
        partition = topic.partitions[index]  # Opening verifies it.
        if partition.failure is None:
            try:
                # This reads the last segment, for which the first append should not have to wait.
                len(partition.log.producers)
            except StorageError as error:
                logger.warning("%r: %s", partition, error)
        progress.finish((topic.name, index))
