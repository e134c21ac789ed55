"""Names of topics by their ids, from commits and metadata."""

from collections.abc import Mapping
from uuid import UUID


class TopicNames:
    """The names that are known so far."""

    __slots__ = ("_names", "version")

    def __init__(self, names: Mapping[bytes, str] | None = None) -> None:
        self._names = dict(names or {})
        self.version = 0
        """Changes if a name does."""

    def learn(self, topic_id: bytes, name: str) -> None:
        """Note a name."""
        if self._names.get(topic_id) != name:
            self._names[topic_id] = name
            self.version += 1

    def name_of(self, topic_id: bytes) -> str:
        """Return the name of a topic; its id as text if it is unknown."""
        return self._names.get(topic_id) or str(UUID(bytes=topic_id))
