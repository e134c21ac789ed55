"""Changes to topics: creation, new partitions, configs, deletion.

The metadata store is changed first, so that after a crash the next start can complete the change:
it creates missing directories of a topic, and removes those of a deleted topic. Changes wait for
each other; reads never wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from kohort.broker.config import BrokerConfig, TopicConfig
from kohort.broker.config.current import CurrentConfig
from kohort.broker.config.group import check_group_configs
from kohort.broker.config.run_time import check_change
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Slice
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.metadata.store import TopicRecord
from kohort.broker.topics.creation import NewTopic, checked_partition_count
from kohort.broker.topics.data_directory_shell import DataDirectoryShell
from kohort.broker.topics.names import (
    check_internal_topic_configs,
    collision_key,
    dead_letter_topic_problem,
)
from kohort.broker.topics.opening import Opener
from kohort.broker.topics.topic import Catalog, Topic
from kohort.broker.topics.upkeep import Upkeep
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from uuid import UUID

    from kohort.broker.topics.partition import Partition

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

Alteration = Callable[[Mapping[str, str]], dict[str, str]]
"""Maps the present configs of a topic or a broker to the new ones; raises KafkaError."""


DeletionListener = Callable[[Sequence[str]], Awaitable[None] | None]


def _uninterrupted(
    change: Callable[P, Coroutine[Any, Any, T]],
) -> Callable[P, Coroutine[Any, Any, T]]:
    """Complete a change even if its caller is cancelled: a partial change would be inconsistent."""

    @wraps(change)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        task = asyncio.ensure_future(change(*args, **kwargs))
        task.add_done_callback(_log_failure)
        return await asyncio.shield(task)

    return run


def _log_failure(task: asyncio.Future[Any]) -> None:
    """Log the failure of a change, in case its caller was cancelled."""
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.debug("A topic change failed: %r", error)


class PlannedTopic(NamedTuple):
    name: str
    topic_id: bytes
    partition_count: int
    overrides: Mapping[str, str]


class TopicChanges:
    def __init__(
        self,
        catalog: Catalog,
        disk: DataDirectoryShell,
        opener: Opener,
        upkeep: Upkeep,
        settings: CurrentConfig,
        *,
        clock: Clock,
        new_uuid: Callable[[], UUID],
        under_way: asyncio.Lock,
    ) -> None:
        """``new_uuid`` creates the ids of topics."""
        self._catalog = catalog
        self._disk = disk
        self._opener = opener
        self._upkeep = upkeep
        self._settings = settings
        self._clock = clock
        self._new_uuid = new_uuid
        self._deletion_listeners: list[DeletionListener] = []
        self._grown_at_ms: dict[str, int] = {}
        """Topics that got more partitions in this process, the latest one last."""
        self.under_way = under_way
        """The lock held during each change, and by other code to prevent changes."""

    def on_topics_deleted(self, listener: DeletionListener) -> None:
        """Call `listener` with the names of deleted topics when clients can no longer see them, and
        await its result before a new topic can get one of the names.
        """
        self._deletion_listeners.append(listener)

    async def create_topic(
        self,
        name: str,
        *,
        partition_count: int,
        configs: Mapping[str, str] | None = None,
    ) -> Topic:
        new = NewTopic(name=name, partition_count=partition_count, configs=configs or {})
        (outcome,) = await self.create_topics([new])
        if isinstance(outcome, KafkaError):
            raise outcome
        topic = self._catalog.get(name)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "deleted right after its creation"
            )
        return topic

    @_uninterrupted
    async def create_topics(
        self,
        wanted: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        charge: Callable[[int], None] = lambda _: None,
    ) -> list[PlannedTopic | KafkaError]:
        """Create topics independently of each other; return a result for each.

        ``charge`` is called with the number of partitions of each topic that could be created, and
        raises KafkaError to forbid the creation.
        """
        async with self.under_way:
            outcomes = await self._plan(wanted, charge)
            planned = [outcome for outcome in outcomes if isinstance(outcome, PlannedTopic)]
            if validate_only or not planned:
                return outcomes
            failures = await self._create(planned)
            return [
                failures.get(outcome.name, outcome)
                if isinstance(outcome, PlannedTopic)
                else outcome
                for outcome in outcomes
            ]

    @_uninterrupted
    async def create_partitions(
        self, topic: Topic, partition_count: int, *, validate_only: bool = False
    ) -> None:
        """Add partitions to a topic up to a validated count. Raises KafkaError."""
        async with self.under_way:
            if not self._is_alive(topic):
                raise _gone(topic)
            have = len(topic.partitions)
            if partition_count <= have:
                raise KafkaError(
                    ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s)."
                )
            self._check_partitions_max(partition_count - have)
            if validate_only:
                return
            await self._disk.run(
                self._disk.data.store.set_partition_count, topic.topic_id, partition_count
            )
            indexes = range(have, partition_count)
            self._catalog.extend(
                topic,
                await self._disk.run(self._opener.open_many, topic, indexes),
            )
            self._grown_at_ms.pop(topic.name, None)
            self._grown_at_ms[topic.name] = self._clock.wall_ms()

    def grown_since(self, wall_ms: int) -> dict[str, int]:
        """Return the topics that got partitions since `wall_ms`, with the time of the change."""
        grown = {}
        for name, at_ms in reversed(self._grown_at_ms.items()):
            if at_ms < wall_ms:
                break
            grown[name] = at_ms
        return grown

    @_uninterrupted
    async def delete_topics(self, topics: Sequence[Topic]) -> list[KafkaError | None]:
        """Delete topics; return the error of each, None for success.

        When this returns, the deletions are durable and visible to all clients. The files are
        removed later.
        """
        async with self.under_way:
            errors = [None if self._is_alive(topic) else _gone(topic) for topic in topics]
            living = [topic for topic, error in zip(topics, errors, strict=True) if error is None]
            try:
                if living:
                    await self._delete(living)
            except StorageError as failure:
                return [error or failure for error in errors]
            return [*errors]

    async def _delete(self, topics: Sequence[Topic]) -> None:
        """Delete topics from the store, then from the catalog. Raises StorageError."""
        ids = [topic.topic_id for topic in topics]
        await self._disk.run(self._disk.data.store.mark_topics_deleted, ids)
        time_slice = Slice(self._clock)
        for topic in topics:
            self._catalog.remove(topic)
            self._grown_at_ms.pop(topic.name, None)
            for partition in topic.partitions.opened():
                partition.mark_deleted()
                self._upkeep.forget(partition)
            await time_slice.pause()
        for listener in self._deletion_listeners:
            pending = listener([topic.name for topic in topics])
            if pending is not None:
                await pending
        await self._remove(topics)

    @_uninterrupted
    async def alter_topic(
        self, topic: Topic, alteration: Alteration, *, validate_only: bool = False
    ) -> None:
        """Change the configs of a topic. Raises KafkaError."""
        async with self.under_way:
            if not self._is_alive(topic):
                raise _gone(topic)
            overrides = alteration(topic.overrides)
            config = self._effective(overrides)
            check_internal_topic_configs(topic.name, config)
            if validate_only or overrides == topic.overrides:
                return
            await self._disk.run(self._disk.data.store.set_topic_configs, topic.topic_id, overrides)
            topic.overrides = overrides
            self._apply(topic, config)

    @_uninterrupted
    async def alter_broker(
        self, broker: str, alteration: Alteration, *, validate_only: bool = False
    ) -> None:
        """Change the dynamic configs of one broker id, or of all brokers if it is "". Raises
        KafkaError.
        """
        async with self.under_way:
            configs = alteration(self._settings.set_at_run_time(broker))
            check_change(self._settings, broker, configs)
            if validate_only:
                return
            await self._disk.run(self._disk.data.store.set_broker_configs, broker, configs)
            self._settings.replace(broker, configs)
            self._opener.forget_configs()
            time_slice = Slice(self._clock)
            for topic in self._catalog.all():
                config = self._opener.effective_or_default(topic.name, topic.overrides)
                self._apply(topic, config)
                await time_slice.pause()

    @_uninterrupted
    async def alter_group(
        self, group_id: str, alteration: Alteration, *, validate_only: bool = False
    ) -> None:
        """Change the configs of a group, which need not exist. Raises KafkaError."""
        async with self.under_way:
            groups, config = self._settings.groups, self._settings.config
            configs = alteration(groups.get(group_id, {}))
            check_group_configs(configs, config)
            _check_dead_letter_topic(configs, groups.get(group_id, {}), config)
            if configs and group_id not in groups and len(groups) >= config.kohort_groups_max:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "Too many groups have configs (kohort.groups.max)."
                )
            if validate_only:
                return
            await self._disk.run(self._disk.data.store.set_group_configs, group_id, configs)
            if configs:
                groups[group_id] = configs
            else:
                groups.pop(group_id, None)

    def delete_records_before(self, partition: Partition, offset: int) -> int:
        """Advance a log start and return it; not durable yet. Raises KafkaError."""
        try:
            return partition.log.delete_records_before(offset, wall_ms=self._clock.wall_ms())
        except StorageError as error:
            if partition.log.failed:
                partition.take_offline(str(error))
            raise

    async def _plan(
        self, wanted: Sequence[NewTopic], charge: Callable[[int], None]
    ) -> list[PlannedTopic | KafkaError]:
        outcomes: list[PlannedTopic | KafkaError] = []
        names: set[str] = set()
        partitions = 0
        time_slice = Slice(self._clock)
        for new in wanted:
            try:
                self._catalog.check_new_name(new.name)
                if collision_key(new.name) in names:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                count = checked_partition_count(new, self._settings.config)
                self._effective(new.configs)
                self._check_partitions_max(partitions + count)
                charge(count)
            except KafkaError as error:
                outcomes.append(error)
            else:
                names.add(collision_key(new.name))
                partitions += count
                topic_id = self._new_uuid().bytes
                outcomes.append(PlannedTopic(new.name, topic_id, count, new.configs))
            await time_slice.pause()
        return outcomes

    async def _create(self, planned: Sequence[PlannedTopic]) -> dict[str, KafkaError]:
        """Store and open new topics; return failures by name."""
        created_ms = self._clock.wall_ms()
        records = [
            TopicRecord(
                topic_id=topic.topic_id,
                name=topic.name,
                partition_count=topic.partition_count,
                created_ms=created_ms,
                configs=dict(topic.overrides),
            )
            for topic in planned
        ]
        try:
            if self._disk.data.directories.has_stale_notes:
                await self._disk.write_checkpoints()
            await self._disk.run(self._disk.data.store.create_topics, records)
        except StorageError as error:
            return dict.fromkeys((topic.name for topic in planned), error)
        failures: dict[str, KafkaError] = {}
        failed: list[Topic] = []
        for record in records:
            topic = self._opener.topic(record)
            if topic.is_internal or await self._disk.run(topic.partitions.open_all):
                self._catalog.add(topic)
            else:
                failures[topic.name] = KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"The partitions of {topic.name} cannot be created.",
                )
                failed.append(topic)
        if failed:
            await self._take_back(failed)
        self._upkeep.note_configs_changed()
        return failures

    async def _take_back(self, topics: Sequence[Topic]) -> None:
        """Undo the creation of topics whose partitions cannot be created.

        If the disk fails here as well, the store keeps the topics. Clients must then see them
        as offline, or their names could never be used again.
        """
        try:
            ids = [topic.topic_id for topic in topics]
            await self._disk.run(self._disk.data.store.mark_topics_deleted, ids)
        except StorageError as error:
            for topic in topics:
                logger.error("%s cannot be removed and is offline: %s", topic, error)  # noqa: TRY400 - the text says it all.
                self._catalog.add(topic)
            return
        try:
            await self._remove(topics)
        except StorageError as error:
            names = ", ".join(topic.name for topic in topics)
            logger.warning(
                "removing directories of %s failed; the next start retries: %s", names, error
            )

    async def _remove(self, topics: Sequence[Topic]) -> None:
        """Remove the files of topics that store and catalog no longer have. Raises StorageError."""
        for topic in topics:
            for partition in topic.partitions.opened():
                await partition.wait_flushed()
        # The checkpoints are rewritten before the name can be reused: their offsets would be wrong
        # for a new topic of that name.
        self._disk.data.directories.keep_notes_of({topic.name for topic in self._catalog.all()})
        await self._disk.write_checkpoints()
        self._disk.remove_later(await self._disk.run(self._disk.data.release_directories, topics))

    def _effective(self, overrides: Mapping[str, str]) -> TopicConfig:
        try:
            return self._opener.effective(overrides)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _apply(self, topic: Topic, config: TopicConfig) -> None:
        topic.config = config
        for partition in topic.partitions.opened():
            partition.config = partition.log.config = config
        self._upkeep.note_configs_changed()

    def _is_alive(self, topic: Topic) -> bool:
        return self._catalog.get_by_id(topic.topic_id) is topic

    def _check_partitions_max(self, more: int) -> None:
        limit = self._settings.config.kohort_max_partitions
        if self._catalog.partition_count + more > limit:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"There would be more partitions than kohort.max.partitions, {limit}, allows.",
            )


def _check_dead_letter_topic(
    configs: Mapping[str, str], previous: Mapping[str, str], config: BrokerConfig
) -> None:
    """Check a group's dead-letter topic if its config changes. Raises KafkaError."""
    key = "errors.deadletterqueue.topic.name"
    name = configs.get(key)
    problem = (
        dead_letter_topic_problem(name, config) if name and name != previous.get(key) else None
    )
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{key}: {problem}")


def _gone(topic: Topic) -> KafkaError:
    text = f"The topic '{topic.name}' does not exist."
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
