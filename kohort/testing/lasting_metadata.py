"""What a broker knows beside the records, in memory and lasting."""

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
        """The next broker goes on with it."""

    def copy(self) -> LastingMetadata:
        """For the next broker, while the last one may still write for a while, unheard."""
        other = LastingMetadata(self.cluster_id)
        other.adopt(self._properties, self._topics.values())
        return other

    def adopt(self, properties: Mapping[str, str], topics: Iterable[TopicRecord]) -> None:
        """Know all that another store knows; this one is new."""
        for name, value in properties.items():
            self._put_property(name, value)
        self.create_topics(topics)

    def end(self) -> None:
        """No broker will need it any more."""
        super().close()
