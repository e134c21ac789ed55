"""The state of a topic in a running broker, and the catalog of all topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, overload

from kohort.broker.config import TopicConfig
from kohort.broker.topics.directories import FIRST_LEADER_EPOCH
from kohort.broker.topics.names import INTERNAL_TOPICS, REBALANCE_HISTORY, check_name, collision_key
from kohort.protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.topics.partition import Partition


class PartitionList(Sequence["Partition"]):
    """Partitions by index, without gaps. Each is opened at its first use.

    So a broker with thousands of partitions starts as fast after a clean stop as a broker without
    any; and each of the fifty partitions of __consumer_offsets gets a directory only when a group
    is stored in it.
    """

    def __init__(
        self,
        count: int,
        open_partition: Callable[[int], Partition],
        on_offline: Callable[[Partition], None] = lambda _: None,
        unopened_epoch: Callable[[int], int] = lambda _: FIRST_LEADER_EPOCH,
    ) -> None:
        """``on_offline`` is called on each request for an offline partition; ``unopened_epoch``
        returns the leader epoch of a partition that is not open.
        """
        self.revision = 0
        """Increases when partitions are added or reopened, or a leader epoch changes."""
        self._open_partition = open_partition
        self._on_offline = on_offline
        self._unopened_epoch = unopened_epoch
        self._partitions: list[Partition | None] = [None] * count

    def __len__(self) -> int:
        return len(self._partitions)

    @overload
    def __getitem__(self, index: int) -> Partition: ...
    @overload
    def __getitem__(self, index: slice) -> list[Partition]: ...
    def __getitem__(self, index: int | slice) -> Partition | list[Partition]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        partition = self._partitions[index]
        if partition is None:
            index %= len(self)
            partition = self._partitions[index] = self._open_partition(index)
            if partition.leader_epoch != self._unopened_epoch(index):
                self.revision += 1
        elif partition.failure is not None:
            self._on_offline(partition)
        return partition

    def peek(self, index: int) -> Partition | None:
        return self._partitions[index]

    def leader_epoch(self, index: int) -> int:
        """Return the leader epoch of a partition for metadata, without opening it."""
        partition = self._partitions[index]
        return self._unopened_epoch(index) if partition is None else partition.leader_epoch

    def leader_epochs(self) -> list[int]:
        unopened_epoch = self._unopened_epoch
        return [
            unopened_epoch(index) if partition is None else partition.leader_epoch
            for index, partition in enumerate(self._partitions)
        ]

    def opened(self) -> Iterator[Partition]:
        """Iterate over the open partitions. More may be opened during the iteration."""
        return (partition for partition in self._partitions if partition is not None)

    def is_online(self, index: int) -> bool:
        """Whether requests for a partition are served; True if it has not been used yet.

        Clients stop sending requests for an offline partition, so this call counts as a request.
        """
        partition = self._partitions[index]
        if partition is None or partition.failure is None:
            return True
        self._on_offline(partition)
        return False

    def are_online(self) -> bool:
        """Whether all partitions are online. Unlike `is_online`, does not count as a request."""
        for partition in self._partitions:
            if partition is not None and partition.failure is not None:
                return False
        return True

    def open_all(self) -> bool:
        """Open all partitions, on any thread, before their first use; return whether that
        succeeded.
        """
        return all(partition.failure is None for partition in self[:])

    def replace(self, partition: Partition) -> None:
        self._partitions[partition.index] = partition
        self.revision += 1

    def extend(self, partitions: Iterable[Partition]) -> None:
        """Add partitions at the end."""
        self._partitions.extend(partitions)
        self.revision += 1


@dataclass(slots=True, eq=False)
class Topic:
    """A topic and its partitions; changed only by the TopicManager."""

    name: str
    topic_id: bytes
    """16 bytes; a topic that is deleted and created again gets a new id."""
    partitions: PartitionList
    """Partitions by index, without gaps."""
    overrides: Mapping[str, str]
    """Configs set on the topic itself, by name."""
    config: TopicConfig
    """The configs in force: the broker's settings with the overrides applied."""
    is_internal: bool = field(init=False)
    """Whether only the broker itself may write to it."""
    is_listed: bool = field(init=False)
    """Whether lists of all topics contain it. The rebalance history is not listed: Kafka has none,
    so programs that compare the topics of a cluster with the expected ones would fail."""

    def __post_init__(self) -> None:
        self.is_internal = self.name in INTERNAL_TOPICS
        self.is_listed = self.name != REBALANCE_HISTORY

    def __repr__(self) -> str:
        return f"Topic({self.name}, {len(self.partitions)} partitions)"


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
