"""Makes topics and their partitions out of what is stored of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Executor

from broker.clock import Clock
from broker.config import TopicConfig
from broker.config.current import CurrentConfig
from broker.config.topic import TOPIC_SETTINGS, effective
from broker.core.purgatory import Purgatory
from broker.storage.errors import StorageError
from broker.storage.metadata_store import TopicRecord
from broker.topics.directories import PartitionDirectories
from broker.topics.offline_log import offline_log
from broker.topics.partition import Partition
from broker.topics.partition_list import PartitionList
from broker.topics.tail_cache import TailCache
from broker.topics.topic import Topic
from protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)


class Opener:
    """Knows what topics and partitions need to run."""

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
        """Most topics set nothing and share one object."""

    def effective(self, overrides: Mapping[str, str]) -> TopicConfig:
        """The configs of a topic with these overrides. Raises ValueError, saying what is wrong."""
        key = frozenset(overrides.items())
        config = self._configs.get(key)
        if config is None:
            config = self._configs[key] = effective(self._settings.config, overrides)
        return config

    def effective_or_default(self, name: str, overrides: Mapping[str, str]) -> TopicConfig:
        """The configs of a topic; those of the broker alone if the two contradict each other."""
        try:
            return self.effective(overrides)
        except ValueError as error:
            logger.warning("configs of topic %s are not used: %s", name, error)
            return self.effective({})

    def forget_configs(self) -> None:
        """The broker's settings have changed, and what follows from them."""
        self._configs.clear()

    def topic(self, record: TopicRecord) -> Topic:
        """A topic, none of whose partitions is open yet."""
        overrides = usable_overrides(record.name, record.configs)
        config = self.effective_or_default(record.name, overrides)
        partitions = PartitionList(record.partition_count, lambda index: self.open(topic, index))
        topic = Topic(record.name, record.topic_id, partitions, overrides, config)
        return topic

    def open_many(self, topic: Topic, indexes: range) -> list[Partition]:
        """Open several; perhaps on another thread."""
        return [self.open(topic, index) for index in indexes]

    def open(self, topic: Topic, index: int) -> Partition:
        """Open one partition; if the disk fails, it is offline and answers KAFKA_STORAGE_ERROR."""
        failure = None
        try:
            log = self._directories.open_log(
                topic.name, index, topic.topic_id, topic.config, wall_ms=self._clock.wall_ms()
            )
        except Exception as error:
            # Whatever it is, the other partitions must not suffer from it.
            if not isinstance(error, StorageError):
                logger.exception("a fault of ours while opening %s-%d", topic.name, index)
            failure = str(error)
            log = offline_log(self._directories.path(topic.name, index), topic.config)
        partition = Partition(
            topic.name,
            index,
            log,
            topic.config,
            purgatory=self._purgatory,
            executor=self._executor,
            tail_cache=self._tail_cache,
        )
        if failure is not None:
            # Set, not told: nobody waits for a new partition, and this may be another thread.
            logger.error("%r is offline: %s", partition, failure)
            partition.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, failure)
        return partition


def usable_overrides(topic: str, stored: Mapping[str, str]) -> dict[str, str]:
    """What is stored for a topic, without what another release may have left there."""
    usable = {}
    for name, text in stored.items():
        try:
            TOPIC_SETTINGS[name].parse(text)
        except (KeyError, ValueError) as error:
            logger.warning("%s=%s of topic %s is not used: %s", name, text, topic, error)
        else:
            usable[name] = text
    return usable
