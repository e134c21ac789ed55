"""The metadata made out of the partition directories, when both databases are damaged or gone.

A directory's name proves the topic and that it has at least so many partitions, and its
partition.metadata the topic's id. Nothing proves a config, so that a topic whose configs are lost
gets such that delete nothing: to apply a retention that its owner never chose could not be taken
back. Everything that is not proved is named in the log, because it has to be set again.

Blocking code. See docs/adr/0009.
"""

from __future__ import annotations

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kohort.broker.config import BrokerConfig
from kohort.broker.storage.checkpoints.partition_metadata import FILE_NAME, read_topic_id
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import LOG_SUFFIX, parse_partition_directory, partition_directory
from kohort.broker.storage.metadata.database import Content, TopicRecord
from kohort.broker.storage.metadata.store import BROKER_CONFIGS, CLUSTER_ID, NEXT_PRODUCER_ID
from kohort.broker.topics.internal import internal_topic_configs
from kohort.broker.topics.names import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    INTERNAL_TOPICS,
    name_problem,
)

logger = logging.getLogger(__name__)

CAREFUL_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.bytes": "-1",
    "retention.ms": "-1",
}
"""Configs of a topic whose own are lost: nothing is deleted, and nothing is compacted."""

KAFKA_FILE: Final = "meta.properties"
"""Kafka formats its directories with this file."""

_PRODUCER_IDS_A_SECOND: Final = 1 << 20
"""More than are ever given out; and the product with the time stays below 2**53, where clients that
keep ids as floating point numbers begin to confuse them."""


class Rebuilding:
    """What a data directory proves; `rebuild` is for MetadataStore."""

    def __init__(
        self,
        files: FileSystem,
        root: Path,
        config: BrokerConfig,
        *,
        wall_ms: int,
        new_id: Callable[[], bytes] = lambda: uuid.uuid4().bytes,
    ) -> None:
        """``new_id`` makes ids for topics whose own cannot be read."""
        self._files = files
        self._root = root
        self._config = config
        self._wall_ms = wall_ms
        self._new_id = new_id

    def rebuild(self, salvaged: Content, *, was_damaged: bool) -> Content:
        """Complete what was salvaged of the databases. Raises OSError.

        A directory without databases is rebuilt as well, unless Kafka made it: then it is not ours.
        """
        if not was_damaged and self._files.exists(f"{self._root}/{KAFKA_FILE}"):
            return salvaged
        found = self._partitions()
        topics = []
        for topic in salvaged.topics:
            indexes = [] if topic.deleted else found.pop(topic.name, [])
            count = max([topic.partition_count, *(index + 1 for index in indexes)])
            topics.append(replace(topic, partition_count=count))
        proven = [self._proven(name, indexes) for name, indexes in sorted(found.items())]
        if not was_damaged and not proven:
            return salvaged
        self._tell(salvaged, proven)
        first_id = max(
            int(salvaged.properties.get(NEXT_PRODUCER_ID, "0")),
            self._wall_ms // 1000 * _PRODUCER_IDS_A_SECOND,
        )
        properties = salvaged.properties | {NEXT_PRODUCER_ID: str(first_id)}
        return Content([*topics, *proven], properties)

    def _partitions(self) -> dict[str, list[int]]:
        """By topic: the partitions that have directories."""
        found: dict[str, list[int]] = {}
        for entry in self._files.entries(str(self._root)):
            parsed = parse_partition_directory(entry.name) if entry.is_directory else None
            if parsed is None or name_problem(parsed[0]) or parsed[0] == CLUSTER_METADATA:
                continue
            name, index = parsed
            if self._is_partition(entry.name) and index < self._config.kohort_max_partitions:
                found.setdefault(name, []).append(index)
        return found

    def _is_partition(self, directory: str) -> bool:
        """Whether a directory of such a name, "backup-20260101" perhaps, holds a log."""
        names = [entry.name for entry in self._files.entries(f"{self._root}/{directory}")]
        return FILE_NAME in names or any(name.endswith(LOG_SUFFIX) for name in names)

    def _proven(self, name: str, indexes: Sequence[int]) -> TopicRecord:
        """What is known of a topic by its directories alone."""
        count = max(indexes) + 1
        if name == CONSUMER_OFFSETS:
            # Its partitions get directories when groups come to live in them, and a group's place
            # follows from how many there are.
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

    def _tell(self, salvaged: Content, proven: Iterable[TopicRecord]) -> None:
        names = {topic.name for topic in proven}
        logger.error(
            "neither metadata database in %s can be used: the metadata is rebuilt with %d topics"
            " that were still readable there and %d known by their directories alone",
            self._root,
            len(salvaged.topics),
            len(names),
        )
        for name in sorted(names - INTERNAL_TOPICS):
            logger.error(
                "lost: the configs of topic %s, and any partitions behind its last directory. Until"
                " somebody sets them again nothing of it is deleted: %s",
                name,
                _shown(CAREFUL_CONFIGS),
            )
        for name in sorted(names & INTERNAL_TOPICS):
            logger.error("lost: the configs of %s; they are those of a new one", name)
        if CLUSTER_ID not in salvaged.properties:
            logger.error("lost: the id of the cluster, unless kohort.cluster.id is set")
        kept = [one for one in salvaged.properties if one.startswith(BROKER_CONFIGS)]
        shown = ", ".join(one.removeprefix(BROKER_CONFIGS) or "all brokers" for one in sorted(kept))
        logger.error(
            "lost: what was set for brokers at run time, but for what is left of %s",
            shown or "none",
        )


def _shown(configs: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in configs.items())
