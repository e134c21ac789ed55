"""The topics by name and by id, and checks for new names."""

from kohort.broker.topics.names import check_name, collision_key
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.topic import Topic
from kohort.protocol.errors import ErrorCode, KafkaError


class Catalog:
    def __init__(self) -> None:
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self.get = self._by_name.get
        """Returns the topic with a name, None if there is none."""
        self.get_by_id = self._by_id.get
        """Returns the topic with an id (16 bytes), None if there is none."""
        self._by_collision_key: dict[str, set[str]] = {}
        self.partition_count = 0
        self.version = 0
        """Grows whenever a topic is added, removed or gets partitions."""

    def __len__(self) -> int:
        return len(self._by_name)

    def all(self) -> list[Topic]:
        return list(self._by_name.values())

    def add(self, topic: Topic) -> None:
        assert topic.name not in self._by_name, f"{topic.name} exists"
        self._by_name[topic.name] = self._by_id[topic.topic_id] = topic
        self._by_collision_key.setdefault(collision_key(topic.name), set()).add(topic.name)
        self.partition_count += len(topic.partitions)
        self.version += 1

    def remove(self, topic: Topic) -> None:
        del self._by_name[topic.name], self._by_id[topic.topic_id]
        names = self._by_collision_key[collision_key(topic.name)]
        names.discard(topic.name)
        if not names:
            del self._by_collision_key[collision_key(topic.name)]
        self.partition_count -= len(topic.partitions)
        self.version += 1

    def extend(self, topic: Topic, partitions: list[Partition]) -> None:
        topic.partitions.extend(partitions)
        self.partition_count += len(partitions)
        self.version += 1

    def check_new_name(self, name: str) -> None:
        """Raise KafkaError if no new topic can have this name."""
        check_name(name)
        if name in self._by_name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        others = self._by_collision_key.get(collision_key(name))
        if others:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {', '.join(sorted(others))}",
            )
