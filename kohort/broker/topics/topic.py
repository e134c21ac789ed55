"""A topic while the broker runs."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.broker.config import TopicConfig
from kohort.broker.topics.names import INTERNAL_TOPICS, REBALANCE_HISTORY
from kohort.broker.topics.partition_list import PartitionList


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
    """Whether lists of all topics contain it. Kafka has no rebalance history, and programs that
    compare the topics of a cluster with the expected ones would fail on it."""

    def __post_init__(self) -> None:
        self.is_internal = self.name in INTERNAL_TOPICS
        self.is_listed = self.name != REBALANCE_HISTORY

    def __repr__(self) -> str:
        return f"Topic({self.name}, {len(self.partitions)} partitions)"
