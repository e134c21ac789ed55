"""A broker's metadata in memory, kept when the broker restarts."""

import weakref
from collections.abc import Iterable, Mapping

from kohort.broker.storage.metadata.store import MetadataStore, TopicRecord


class LastingMetadata(MetadataStore):
    """A metadata store in memory that outlives its broker; changes are durable at once."""

    def __init__(self, cluster_id: str = "x") -> None:
        super().__init__(None, new_cluster_id=cluster_id)
        weakref.finalize(self, self._database.close)

    def close(self) -> None:
        """Keep the content for the next broker."""

    def copy(self) -> "LastingMetadata":
        """Return a copy for the next broker; later writes of the previous one do not affect it."""
        other = LastingMetadata(self.cluster_id)
        other.adopt(self._properties, self._topics.values())
        return other

    def adopt(self, properties: Mapping[str, str], topics: Iterable[TopicRecord]) -> None:
        """Fill this new store with the properties and topics of another store."""
        for name, value in properties.items():
            self._put_property(name, value)
        self.create_topics(topics)

    def end(self) -> None:
        """Close the database permanently."""
        super().close()
