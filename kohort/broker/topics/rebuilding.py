"""Rebuilding the metadata from the partition directories, if both databases are damaged or gone.

A directory's name proves that the topic and all its partitions up to this one exist; its
partition.metadata proves the topic's id. Nothing proves a config, so a topic whose configs are lost
gets configs that delete nothing: records deleted by a retention that its owner never chose could
not be restored. Everything unproved is listed in the log, because it has to be set again.

Blocking code. See docs/adr/0009.
"""

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kohort.broker.config import BrokerConfig
from kohort.broker.storage.checkpoints.partition_metadata import FILE_NAME, read_topic_id
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import LOG_SUFFIX, parse_partition_directory, partition_directory
from kohort.broker.storage.metadata.database import Content, TopicRecord
from kohort.broker.storage.metadata.store import (
    ACCESS_LOSS,
    BROKER_CONFIGS,
    CLUSTER_ID,
    NEXT_PRODUCER_ID,
)
from kohort.broker.topics.names import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
    internal_topic_configs,
    name_problem,
)

logger = logging.getLogger(__name__)

CAREFUL_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
"""Configs of a topic whose own configs are lost: nothing is deleted or compacted."""

_PRODUCER_IDS_A_SECOND: Final = 1 << 20
"""New producer ids begin at this number times the seconds since 1970: more ids per second than any
broker allocates, and below 2**53, because clients may store ids as floating point numbers.
"""

LOSS_DIGITS: Final = 12
"""Digits of an access loss id: few, because operators copy it to `kohort.access.loss.confirmed`."""


class Rebuilding:
    """Rebuilds the metadata from partition directories; MetadataStore calls `rebuild`."""

    def __init__(
        self,
        files: FileSystem,
        root: Path,
        config: BrokerConfig,
        *,
        wall_ms: int,
        new_id: Callable[[], bytes] = lambda: os.urandom(16),
    ) -> None:
        """``new_id`` makes ids for topics whose id cannot be read."""
        self._files = files
        self._root = root
        self._config = config
        self._wall_ms = wall_ms
        self._new_id = new_id

    def rebuild(self, salvaged: Content, *, was_damaged: bool) -> Content:
        """Return the content salvaged from the databases, completed from the directories."""
        by_topic = self._partitions()
        topics = []
        for topic in salvaged.topics:
            indexes = [] if topic.deleted else by_topic.pop(topic.name, [])
            count = max([topic.partition_count, *(index + 1 for index in indexes)])
            topics.append(topic._replace(partition_count=count))
        proven = [self._proven(name, indexes) for name, indexes in sorted(by_topic.items())]
        if not was_damaged and not proven:
            return salvaged
        self._log_result(salvaged, proven)
        first_id = max(
            int(salvaged.properties.get(NEXT_PRODUCER_ID, "0")),
            self._wall_ms // 1000 * _PRODUCER_IDS_A_SECOND,
        )
        properties = salvaged.properties | {
            NEXT_PRODUCER_ID: str(first_id),
            # Report a loss of access rules: a deny rule may be lost, or a removed rule be back.
            ACCESS_LOSS: self._new_id().hex()[:LOSS_DIGITS],
        }
        return Content([*topics, *proven], properties)

    def _partitions(self) -> dict[str, list[int]]:
        """Return the partitions that have directories, by topic."""
        by_topic: dict[str, list[int]] = {}
        for entry in self._files.entries(str(self._root)):
            parsed = parse_partition_directory(entry.name) if entry.is_directory else None
            if parsed is None or name_problem(parsed[0]) or parsed[0] == CLUSTER_METADATA:
                continue
            name, index = parsed
            if self._is_partition(entry.name) and index < self._config.kohort_max_partitions:
                by_topic.setdefault(name, []).append(index)
        return by_topic

    def _is_partition(self, directory: str) -> bool:
        """Whether a directory with a name like a partition's ("backup-20260101") contains a log."""
        names = [entry.name for entry in self._files.entries(f"{self._root}/{directory}")]
        return FILE_NAME in names or any(name.endswith(LOG_SUFFIX) for name in names)

    def _proven(self, name: str, indexes: Sequence[int]) -> TopicRecord:
        count = max(indexes) + 1
        if name == CONSUMER_OFFSETS:
            # A group's partition depends on the partition count, which may exceed the number of
            # directories: one is created when its first group is stored.
            count = max(count, self._config.offsets_topic_num_partitions)
        ids = Counter(filter(None, (self._topic_id(name, index) for index in indexes)))
        if not ids:
            logger.error("the id of topic %s cannot be read; it gets a new one", name)
        topic_id = ids.most_common(1)[0][0] if ids else self._new_id()
        configs = internal_topic_configs(name, self._config) or CAREFUL_CONFIGS
        return TopicRecord(
            topic_id=topic_id, name=name, partition_count=count, created_ms=0, configs=configs
        )

    def _topic_id(self, name: str, index: int) -> bytes | None:
        try:
            return read_topic_id(self._files, f"{self._root}/{partition_directory(name, index)}")
        except CorruptFileError as error:
            logger.warning("%s", error)
            return None

    def _log_result(self, salvaged: Content, proven: Iterable[TopicRecord]) -> None:
        names = {topic.name for topic in proven}
        logger.error(
            "neither metadata database in %s can be used: the metadata is rebuilt; topics"
            " still readable there: %d, known only by their directories: %d",
            self._root,
            len(salvaged.topics),
            len(names),
        )
        for name in sorted(names - INTERNAL_TOPICS):
            logger.error(
                "lost: the configs of topic %s, and any partitions after its last directory. Until"
                " they are set again, none of its records are deleted: %s",
                name,
                _shown(CAREFUL_CONFIGS),
            )
        for name in sorted(names & INTERNAL_TOPICS):
            logger.error("lost: the configs of %s, which get the defaults", name)
        if CLUSTER_ID not in salvaged.properties:
            logger.error("lost: the id of the cluster, unless kohort.cluster.id is set")
        kept = [name for name in salvaged.properties if name.startswith(BROKER_CONFIGS)]
        shown = ", ".join(
            name.removeprefix(BROKER_CONFIGS) or "all brokers" for name in sorted(kept)
        )
        logger.error(
            "lost: dynamic broker configs, except the remaining ones of %s",
            shown or "none",
        )
        logger.error(
            "possibly lost: users, access rules and client quotas; removed ones may have returned"
        )


def _shown(configs: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in configs.items())
