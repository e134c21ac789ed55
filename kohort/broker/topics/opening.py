"""Creates topics and their partitions from the stored metadata."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeGuard, cast

from kohort.broker.config import TopicConfig
from kohort.broker.config.current import CurrentConfig
from kohort.broker.config.topic import TOPIC_SETTINGS, effective
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.runtime.clock import Clock
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.metadata.store import TopicRecord
from kohort.broker.topics.directories import PartitionDirectories
from kohort.broker.topics.tail_cache import TailCache
from kohort.broker.topics.topic import PartitionList, Topic
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.storage.log.log import PartitionLog
    from kohort.broker.topics.partition import Partition


class OfflineLog:
    """Replaces an offline partition's log; has only the attributes that are read in that state."""

    log_start_offset = 0
    log_end_offset = 0
    flushed_offset = 0
    size_bytes = 0
    lost_offsets = 0
    newest_epoch = -1
    segments = ()
    failed = True

    def __init__(self, directory: Path, config: TopicConfig, *, retry_at_ms: int) -> None:
        self.directory = directory
        self.config = config
        self.attempts = 1
        """How often opening the log has failed."""
        self.retry_at_ms = retry_at_ms
        """Monotonic time of the next attempt."""
        self.is_retrying = False


def offline_log(directory: Path, config: TopicConfig, *, retry_at_ms: int) -> PartitionLog:
    """Create an `OfflineLog`; its partition must be taken offline at once."""
    return cast("PartitionLog", OfflineLog(directory, config, retry_at_ms=retry_at_ms))


def is_offline_log(log: object) -> TypeGuard[OfflineLog]:
    """Whether a partition has an `OfflineLog` in place of its log."""
    return isinstance(log, OfflineLog)


logger = logging.getLogger(__name__)

RETRY_MS_MIN: Final = 1_000
RETRY_MS_MAX: Final = 60_000
"""Delay until a partition is opened again; doubled after each failure, up to the maximum."""

CONFIGS_CACHED_MAX: Final = 10_000
"""Combinations of overrides whose effective configs are cached."""


class Opener:
    def __init__(
        self,
        settings: CurrentConfig,
        directories: PartitionDirectories,
        *,
        clock: Clock,
        purgatory: Purgatory,
        executor: Executor,
        tail_cache: TailCache,
    ) -> None:
        self._settings = settings
        self._directories = directories
        self._clock = clock
        self._purgatory = purgatory
        self._executor = executor
        self._tail_cache = tail_cache
        self._configs: dict[frozenset[tuple[str, str]], TopicConfig] = {}
        """Effective configs by overrides; most topics have no overrides and share one object."""

    def effective(self, overrides: Mapping[str, str]) -> TopicConfig:
        """Return the configs of a topic with these overrides. Raises ValueError with the reason."""
        key = frozenset(overrides.items())
        config = self._configs.get(key)
        if config is None:
            if len(self._configs) >= CONFIGS_CACHED_MAX:
                self._configs.clear()  # Requests that only validate fill it, too.
            config = self._configs[key] = effective(self._settings.config, overrides)
        return config

    def effective_or_default(self, name: str, overrides: Mapping[str, str]) -> TopicConfig:
        """Return a topic's configs, or the defaults if the combination is invalid."""
        try:
            return self.effective(overrides)
        except ValueError as error:
            logger.warning("invalid configs of topic %s are ignored: %s", name, error)
            return self.effective({})

    def forget_configs(self) -> None:
        """Drop cached configs, because the broker's settings have changed."""
        self._configs.clear()

    def topic(self, record: TopicRecord) -> Topic:
        """Create a topic, without opening its partitions."""
        overrides = usable_overrides(record.name, record.configs)
        config = self.effective_or_default(record.name, overrides)
        partitions = PartitionList(
            record.partition_count,
            lambda index: self.open(topic, index),
            lambda partition: self._reopen_if_due(topic, partition),
            lambda index: self._directories.leader_epoch(record.name, index),
        )
        topic = Topic(record.name, record.topic_id, partitions, overrides, config)
        return topic

    def open_many(self, topic: Topic, indexes: range) -> list[Partition]:
        return [self.open(topic, index) for index in indexes]

    def open(self, topic: Topic, index: int) -> Partition:
        """Open one partition. If the disk fails, the partition is offline: KAFKA_STORAGE_ERROR.

        A later request for an offline partition opens it again: the cause may have been temporary,
        such as a lack of file descriptors.
        """
        try:
            return self._partition(topic, index, self._open_log(topic, index))
        except StorageError as error:
            retry_at_ms = self._clock.monotonic_ms() + RETRY_MS_MIN
            path = self._directories.path(topic.name, index)
            log = offline_log(path, topic.config, retry_at_ms=retry_at_ms)
            partition = self._partition(topic, index, log)
            # `failure` is set directly: no request waits for a new partition, and this may be
            # another thread, which must not call `take_offline`.
            logger.error("%r is offline: %s", partition, error)  # noqa: TRY400 - it says it all.
            partition.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            return partition

    def _open_log(self, topic: Topic, index: int) -> PartitionLog:
        """Open a log. Every error becomes StorageError, so that it affects only this partition."""
        try:
            return self._directories.open_log(
                topic.name, index, topic.topic_id, topic.config, wall_ms=self._clock.wall_ms()
            )
        except StorageError:
            raise
        except Exception as error:
            logger.exception("Internal error while opening %s-%d", topic.name, index)
            raise StorageError(str(error)) from error

    def _partition(self, topic: Topic, index: int, log: PartitionLog) -> Partition:
        from kohort.broker.topics.partition import Partition  # noqa: PLC0415 - not for a start.

        return Partition(
            topic.name,
            index,
            log,
            topic.config,
            purgatory=self._purgatory,
            executor=self._executor,
            tail_cache=self._tail_cache,
            leader_epoch=self._directories.leader_epoch(topic.name, index),
        )

    def _reopen_if_due(self, topic: Topic, partition: Partition) -> None:
        """Start to open an offline partition again, if a retry is due. Runs on the event loop."""
        log = partition.log
        if (
            not is_offline_log(log)
            or log.is_retrying
            or self._clock.monotonic_ms() < log.retry_at_ms
        ):
            return
        log.is_retrying = True
        # In another thread, because verifying a log may take long.
        opening = asyncio.get_running_loop().run_in_executor(
            self._executor, self._open_log, topic, partition.index
        )
        opening.add_done_callback(partial(self._reopened, topic, partition, log))

    def _reopened(
        self,
        topic: Topic,
        partition: Partition,
        stand_in: OfflineLog,
        opening: asyncio.Future[PartitionLog],
    ) -> None:
        stand_in.is_retrying = False
        if opening.cancelled():
            return
        error = opening.exception()
        if error is not None:
            wait_ms = min(RETRY_MS_MIN << stand_in.attempts, RETRY_MS_MAX)
            stand_in.attempts += 1
            stand_in.retry_at_ms = self._clock.monotonic_ms() + wait_ms
            logger.warning("%r is still offline: %s", partition, error)
            return
        log = opening.result()
        failure = partition.failure
        if failure is None or failure.code is not ErrorCode.KAFKA_STORAGE_ERROR:  # It is deleted.
            with contextlib.suppress(StorageError):
                log.close()
            return
        log.config = topic.config
        topic.partitions.replace(self._partition(topic, partition.index, log))
        logger.info("%r is online", partition)


def usable_overrides(topic: str, stored: Mapping[str, str]) -> dict[str, str]:
    """Return a topic's stored configs, without invalid ones that another release may have left."""
    usable = {}
    for name, text in stored.items():
        try:
            TOPIC_SETTINGS[name].parse(text)
        except (KeyError, ValueError) as error:
            logger.warning("%s=%s of topic %s is ignored: %s", name, text, topic, error)
        else:
            usable[name] = text
    return usable
