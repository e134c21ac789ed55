"""Names of topics by their ids, from commits and metadata."""

from collections.abc import Mapping
from uuid import UUID


class TopicNames:
    __slots__ = ("_ids", "_names", "version")

    def __init__(self, names: Mapping[bytes, str] | None = None) -> None:
        self._names = dict(names or {})
        self._ids = {topic_id: topic_id for topic_id in self._names}
        self.version = 0
        """Changes whenever a name changes."""

    def learn(self, topic_id: bytes, name: str) -> bytes:
        """Record the name of a topic; return its id, always as the same object."""
        if self._names.get(topic_id) != name:
            self._names[topic_id] = name
            self._ids[topic_id] = topic_id
            self.version += 1
        return self._ids[topic_id]

    def name_of(self, topic_id: bytes) -> str:
        """Return the name of a topic; its id as text if it is unknown."""
        return self._names.get(topic_id) or str(UUID(bytes=topic_id))
