"""A topic while the broker runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.broker.config import TopicConfig
from kohort.broker.topics.names import INTERNAL_TOPICS
from kohort.broker.topics.partition_list import PartitionList


@dataclass(slots=True, eq=False)
class Topic:
    """A topic and its partitions; the TopicManager alone changes it."""

    name: str
    topic_id: bytes
    """16 bytes; another topic of the same name has another id."""
    partitions: PartitionList
    """By index, without gaps."""
    overrides: Mapping[str, str]
    """What is set on the topic itself, by config name."""
    config: TopicConfig
    """What applies now: the overrides over the broker's settings."""
    is_internal: bool = field(init=False)
    """Whether only the broker itself may write to it."""

    def __post_init__(self) -> None:
        self.is_internal = self.name in INTERNAL_TOPICS

    def __repr__(self) -> str:
        return f"Topic({self.name}, {len(self.partitions)} partitions)"
