"""The broker's metadata: topics, their configs, its own identity.

Stored twice in the data directory, in `metadata.db` and its mirror, so that a damaged file does no
harm: at the next start the sound one with more changes replaces the other
(:mod:`kohort.broker.storage.metadata.copies`). Methods return when both files have the change; a
file that cannot be written is not used again before the next start.

All metadata changes are made here; components that cache metadata update their copies after the
method returned. A topic is deleted in two steps: `mark_topics_deleted` frees its name at once,
`forget_topics` follows when its directories are gone; in between, even across a crash,
`deleted_topics` lists what is still to be removed.

Methods block and may be called from any thread; they exclude each other. They raise StorageError if
the disk fails, having changed nothing.
"""

import json
import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.metadata.copies import Rebuild, open_copies
from kohort.broker.storage.metadata.database import (
    CHANGES,
    MetadataDatabase,
    MetadataError,
    Statement,
    TopicRecord,
    forget_property,
    forget_topic,
    put_property,
)

__all__ = ["MetadataError", "MetadataStore", "TopicRecord"]

FILE_NAME: Final = "metadata.db"
MIRROR_FILE_NAME: Final = "metadata-mirror.db"

CLUSTER_ID: Final = "cluster_id"
NEXT_PRODUCER_ID: Final = "next_producer_id"
GROUP_CONFIGS: Final = "group_configs:"
"""The property named with this prefix and a group's id stores the configs of that group."""
BROKER_CONFIGS: Final = "broker_configs:"
"""The property named with this prefix and a broker's id stores the dynamic configs of that broker;
the one named with the prefix alone stores the cluster-wide ones."""
ACCESS_LOSS: Final = "access_loss"
"""The property with the id of the last metadata loss that may have changed access rules.
"""

logger = logging.getLogger(__name__)


class MetadataStore:
    """The database and its mirror, with their content in memory. Lock the data directory first."""

    def __init__(
        self, directory: Path | None, *, new_cluster_id: str, rebuild: Rebuild | None = None
    ) -> None:
        """Open or create the databases in a directory; None keeps them in memory, for simulations.

        ``new_cluster_id`` is for a directory without a database. If neither database is sound,
        ``rebuild`` creates the content from what is left of them. Raises MetadataError or
        StorageError.
        """
        self._lock = threading.Lock()
        self._mirror: MetadataDatabase | None = None
        if directory is None:
            self._database = MetadataDatabase(None)
            content = self._database.read()
        else:
            paths = directory / FILE_NAME, directory / MIRROR_FILE_NAME
            self._database, self._mirror, content = open_copies(*paths, rebuild)
        self._topics = {topic.topic_id: topic for topic in content.topics}
        self._properties = content.properties
        if CLUSTER_ID not in self._properties:
            self._put_property(CLUSTER_ID, new_cluster_id)

    def close(self) -> None:
        """Close the databases; the store cannot be used any more."""
        with self._lock:
            self._database.close()
            if self._mirror is not None:
                self._mirror.close()

    @property
    def cluster_id(self) -> str:
        return self._properties[CLUSTER_ID]

    def topics(self) -> list[TopicRecord]:
        """All topics that are not deleted, by name."""
        return [topic for topic in self._by_name() if not topic.deleted]

    def deleted_topics(self) -> list[TopicRecord]:
        """Deleted topics whose directories may still exist."""
        return [topic for topic in self._by_name() if topic.deleted]

    def create_topics(self, topics: Iterable[TopicRecord]) -> None:
        """Store new topics, all or none; their names must be free."""
        self._put_topics(list(topics))

    def set_partition_count(self, topic_id: bytes, partition_count: int) -> None:
        topic = self._topics[topic_id]
        assert partition_count >= topic.partition_count, "partitions are never removed"
        self._put_topics([topic._replace(partition_count=partition_count)])

    def set_topic_configs(self, topic_id: bytes, configs: Mapping[str, str]) -> None:
        self._put_topics([self._topics[topic_id]._replace(configs=dict(configs))])

    def mark_topics_deleted(self, topic_ids: Iterable[bytes]) -> None:
        """Delete topics: their names are free at once, and `deleted_topics` lists them."""
        self._put_topics([self._topics[topic_id]._replace(deleted=True) for topic_id in topic_ids])

    def forget_topics(self, topic_ids: Sequence[bytes]) -> None:
        """Forget deleted topics of which no data is left."""
        with self._lock:
            self._change([forget_topic(topic_id) for topic_id in topic_ids])
            for topic_id in topic_ids:
                self._topics.pop(topic_id, None)

    def broker_configs(self, broker: str) -> dict[str, str]:
        """Return the dynamic configs of one broker id, or the cluster-wide ones for an empty id."""
        configs: dict[str, str] = json.loads(self._properties.get(BROKER_CONFIGS + broker, "{}"))
        return configs

    def set_broker_configs(self, broker: str, configs: Mapping[str, str]) -> None:
        """Replace the dynamic configs of a broker id, or the cluster-wide ones for an empty id."""
        text = json.dumps(dict(configs), sort_keys=True)
        with self._lock:
            self._put_property(BROKER_CONFIGS + broker, text)

    def group_configs(self) -> dict[str, dict[str, str]]:
        return {
            name.removeprefix(GROUP_CONFIGS): json.loads(text)
            for name, text in self.properties(GROUP_CONFIGS).items()
        }

    def set_group_configs(self, group_id: str, configs: Mapping[str, str]) -> None:
        text = json.dumps(dict(configs), sort_keys=True) if configs else None
        self.set_properties({GROUP_CONFIGS + group_id: text})

    def properties(self, prefix: str) -> dict[str, str]:
        with self._lock:
            return {
                name: text for name, text in self._properties.items() if name.startswith(prefix)
            }

    def set_properties(self, properties: Mapping[str, str | None]) -> None:
        """Store all properties or none of them. A value None removes the property."""
        statements = [
            forget_property(name) if text is None else put_property(name, text)
            for name, text in properties.items()
        ]
        with self._lock:
            self._change(statements)
            for name, text in properties.items():
                if text is None:
                    self._properties.pop(name, None)
                else:
                    self._properties[name] = text

    def allocate_producer_ids(self, count: int) -> range:
        """Return a block of producer ids that no other call ever returns, even after a crash."""
        assert count > 0, "a block has at least one id"
        with self._lock:
            first = int(self._properties.get(NEXT_PRODUCER_ID, "0"))
            self._put_property(NEXT_PRODUCER_ID, str(first + count))
        return range(first, first + count)

    def _by_name(self) -> list[TopicRecord]:
        with self._lock:
            return sorted(self._topics.values(), key=lambda topic: topic.name)

    def _put_topics(self, topics: list[TopicRecord]) -> None:
        with self._lock:
            self._change([topic.put() for topic in topics])
            self._topics.update((topic.topic_id, topic) for topic in topics)

    def _put_property(self, name: str, value: str) -> None:
        self._change([put_property(name, value)])
        self._properties[name] = value

    def _change(self, statements: list[Statement]) -> None:
        changes = str(int(self._properties.get(CHANGES, "0")) + 1)
        statements = [*statements, put_property(CHANGES, changes)]
        self._database.change(statements)
        self._properties[CHANGES] = changes
        if self._mirror is None:
            return
        try:
            self._mirror.change(statements)
        except StorageError:
            logger.exception("the mirror of the metadata is not used until the next start")
            # Remove the mirror, so that no start restores from a file without this durable change.
            self._mirror.destroy()
            self._mirror = None
