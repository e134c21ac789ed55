"""A broker's metadata in memory, which outlives the broker."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping

from kohort.broker.storage.metadata.store import MetadataStore, TopicRecord


class LastingMetadata(MetadataStore):
    """Topics in memory that outlive the broker, as its databases would: every change is durable
    when it returns.
    """

    def __init__(self, cluster_id: str = "x") -> None:
        super().__init__(None, new_cluster_id=cluster_id)
        weakref.finalize(self, self._database.close)

    def close(self) -> None:
        """Keep the content for the next broker."""

    def copy(self) -> LastingMetadata:
        """Return a copy for the next broker; later writes of the last one have no effect on it."""
        other = LastingMetadata(self.cluster_id)
        other.adopt(self._properties, self._topics.values())
        return other

    def adopt(self, properties: Mapping[str, str], topics: Iterable[TopicRecord]) -> None:
        """Take over the content of another store; this one is new."""
        for name, value in properties.items():
            self._put_property(name, value)
        self.create_topics(topics)

    def end(self) -> None:
        """Close it for good."""
        super().close()
