"""The topics of the broker: opened at the start, found, looked after, closed.

What blocks runs in the executor, apart from opening a partition that was closed cleanly, which
takes a tenth of a millisecond. A disk that fails one partition takes that partition offline and no
other.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from kohort.broker.config import LoadedConfig
from kohort.broker.config.current import CurrentConfig
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.runtime.clock import Clock
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.log.log import OS_FILES
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.broker.topics.catalog import Catalog
from kohort.broker.topics.changes import TopicChanges
from kohort.broker.topics.compaction import Compactor
from kohort.broker.topics.data_directory import DataDirectory, close_logs
from kohort.broker.topics.opening import Opener
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.producer_ids import ProducerIds
from kohort.broker.topics.tail_cache import TailCache
from kohort.broker.topics.topic import Topic
from kohort.broker.topics.upkeep import Upkeep

P = ParamSpec("P")
T = TypeVar("T")

RECOVERY_THREADS: Final = 4
"""Side by side, because verifying many small logs is mostly waiting for fsyncs."""
CLOSING_THREADS: Final = 4

logger = logging.getLogger(__name__)


class TopicManager:
    """See the module. For the loop's thread."""

    settings: CurrentConfig
    """The broker's settings as they are now. Like all the rest, there after `start`."""
    cluster_id: str
    compaction: Compactor
    data: DataDirectory
    """What lies on the disk: directories, their notes, the metadata store."""
    opener: Opener
    """Makes topics of what is stored, and partitions of directories."""
    _producer_ids: ProducerIds
    _upkeep_task: asyncio.Task[None]

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
        new_uuid: Callable[[], uuid.UUID] = uuid.uuid4,
    ) -> None:
        """``store`` replaces the database in the data directory, for simulations; ``new_uuid``
        makes the ids of topics.
        """
        self.directory: Path = loaded.config.data_directory.absolute()
        """The data directory."""
        self._loaded = loaded
        self._purgatory = purgatory
        self._executor = executor
        self._tail_cache = tail_cache or TailCache()
        self._files = files
        self._store = store
        self.clock = clock
        self.catalog = Catalog()
        """The topics that exist for clients."""
        self.get = self.catalog.get
        self.get_by_id = self.catalog.get_by_id
        self.all = self.catalog.all
        self.changes = TopicChanges(self, new_uuid)
        self._checkpointing = asyncio.Lock()
        self._removals: set[asyncio.Future[None]] = set()
        self.upkeep = Upkeep(
            self.all, lambda: self.settings, self.write_checkpoints, clock=clock, executor=executor
        )
        """What has to be done to logs from time to time."""

    async def start(self) -> None:
        """Open everything in the data directory, whose lock must be held; verify it if need be.

        Raises ConfigError, MetadataError or StorageError if the broker cannot start.
        """
        config = self._loaded.config
        self.data = data = await self.run_in_executor(
            partial(DataDirectory.open, wall_ms=self.clock.wall_ms()),
            config,
            self.directory,
            self._files,
            self._store,
        )
        self.cluster_id = data.store.cluster_id
        self.settings = CurrentConfig(
            self._loaded,
            for_this_broker=data.store.broker_configs(str(config.node_id)),
            for_all_brokers=data.store.broker_configs(""),
        )
        self.opener = Opener(
            self.settings,
            data.directories,
            clock=self.clock,
            purgatory=self._purgatory,
            executor=self._executor,
            tail_cache=self._tail_cache,
        )
        self._producer_ids = ProducerIds(data.store.allocate_producer_ids)
        for record in data.store.topics():
            self.catalog.add(self.opener.topic(record))
        living = {topic.name for topic in self.all()}
        refuse = await self.run_in_executor(data.bury_deleted_topics, living)
        await self._recover()
        # Before the checkpoints: on a full disk it makes room for them.
        self.remove_later(refuse)
        await self._write_first_checkpoints()
        self.compaction = await self.run_in_executor(self._make_compactor)
        self.changes.on_topics_deleted(self.compaction.forget)
        self._upkeep_task = asyncio.create_task(
            self.upkeep.run(self.compaction.run), name="upkeep of logs"
        )
        self._upkeep_task.add_done_callback(_log_unless_cancelled)

    async def _write_first_checkpoints(self) -> None:
        """A full disk must not keep records from being read; Upkeep tries again."""
        try:
            await self.write_checkpoints()
        except StorageError as error:
            logger.error("%s; started all the same", error)  # noqa: TRY400 - the text says it all.

    def _make_compactor(self) -> Compactor:
        return Compactor(
            self.all,
            lambda: self.settings,
            self._files,
            self.directory,
            clock=self.clock,
            executor=self._executor,
        )

    async def close(self) -> None:
        """Make everything durable and mark the stop as a clean one, unless a partition failed.

        Raises StorageError where that is not possible; the next start then verifies the logs.
        """
        self._upkeep_task.cancel()
        await asyncio.wait([self._upkeep_task])
        async with self.changes.under_way, self._checkpointing:
            partitions = list(self._opened())
            for partition in partitions:
                await partition.wait_flushed()
            logs = [partition.log for partition in partitions]
            # Side by side, because each waits for fsyncs that the file system can put together.
            closed = await asyncio.gather(
                *(
                    self.run_in_executor(close_logs, logs[start::CLOSING_THREADS])
                    for start in range(CLOSING_THREADS)
                )
            )
            self._note_offsets()
            if self._removals:
                await asyncio.wait(self._removals)
            await self.run_in_executor(lambda: self.data.close(is_clean=all(closed)))

    def partition(self, name: str, index: int) -> Partition | None:
        """A partition, opened if need be."""
        topic = self.catalog.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def is_on_disk(self, name: str, index: int) -> bool:
        """Whether a partition has a directory; a look that makes none."""
        return self.data.directories.exists(name, index)

    async def wait_flushed(self, timeout_ms: int) -> None:
        """Return when no partition is being flushed, or after that time."""
        flushes = {flush for partition in self._opened() if (flush := partition.flush) is not None}
        if flushes:
            await asyncio.wait(flushes, timeout=timeout_ms / 1000)

    def next_producer_id(self) -> int:
        """An id that no producer ever had. Raises StorageError."""
        return self._producer_ids.next()

    async def write_checkpoints(self) -> None:
        """Note on disk where logs start, and up to where they need no verification.

        Raises StorageError.
        """
        async with self._checkpointing:
            self._note_offsets()
            directories = self.data.directories
            await self.run_in_executor(directories.write_checkpoints, *directories.notes())

    async def _recover(self) -> None:
        """After an unclean stop: verify what there is, before anybody is served."""
        found = await self.run_in_executor(self.data.to_recover, self.all())
        if found:
            logger.info("the last stop was not clean: verifying %d partitions", len(found))
        chunks = (found[start::RECOVERY_THREADS] for start in range(RECOVERY_THREADS))
        await asyncio.gather(*(self.run_in_executor(_open_all, chunk) for chunk in chunks if chunk))

    def remove_later(self, refuse: Sequence[Path]) -> None:
        """Remove directories that nothing refers to any more; `close` waits for it."""
        if refuse:
            loop = asyncio.get_running_loop()
            removal = loop.run_in_executor(self._executor, self.data.directories.remove, refuse)
            self._removals.add(removal)
            removal.add_done_callback(self._removals.discard)

    def _opened(self) -> Iterator[Partition]:
        for topic in self.all():
            yield from topic.partitions.opened()

    def _note_offsets(self) -> None:
        for partition in self._opened():
            if not partition.log.failed or partition.log.segments:
                self.data.directories.note(
                    partition.log, partition.topic_name, partition.index, partition.leader_epoch
                )

    async def run_in_executor(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do what blocks in another thread, and return or raise what it does."""
        call = partial(work, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self._executor, call)


def _open_all(partitions: Sequence[tuple[Topic, int]]) -> None:
    for topic, index in partitions:
        partition = topic.partitions[index]  # Opening verifies it.
        if partition.failure is None:
            try:
                # Its last segment is read for that, which the first append should not wait for.
                len(partition.log.producers)
            except StorageError as error:
                logger.warning("%r: %s", partition, error)


def _log_unless_cancelled(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and task.exception() is not None:
        logger.critical("the upkeep of logs has ended", exc_info=task.exception())
