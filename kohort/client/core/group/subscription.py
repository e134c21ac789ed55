"""The topics or partitions that a consumer wants to read, and its assignment."""

import re
from collections.abc import Collection, Iterable
from enum import Enum

from kohort.client.core.errors import IllegalStateError
from kohort.client.core.partitions import TopicPartition


class SubscriptionKind(Enum):
    """The kinds of subscription; changing the kind requires an unsubscribe."""

    NONE = "none"
    TOPICS = "topics"
    PATTERN = "pattern"
    MANUAL = "manual"
    """Partitions assigned manually, without group assignment."""


class Subscription:
    def __init__(self, *, has_group: bool = True) -> None:
        """`has_group`: whether a group shares the topics; if not, all their partitions are read."""
        self._has_group = has_group
        self.kind = SubscriptionKind.NONE
        self.topics: frozenset[str] = frozenset()
        """The topics subscribed to by name, or those that match the pattern at present."""
        self.pattern: re.Pattern[str] | None = None
        self.broker_pattern = ""
        """The RE2 expression that the coordinator, not this client, resolves (KIP-848); empty for
        none."""
        self.assigned: frozenset[TopicPartition] = frozenset()

    @property
    def is_by_group(self) -> bool:
        return self._is_by_topic and self._has_group

    @property
    def is_alone(self) -> bool:
        """Whether topics are subscribed to without a group."""
        return self._is_by_topic and not self._has_group

    @property
    def _is_by_topic(self) -> bool:
        return self.kind in {SubscriptionKind.TOPICS, SubscriptionKind.PATTERN}

    def subscribe(self, topics: Iterable[str]) -> None:
        self._begin(SubscriptionKind.TOPICS)
        self.topics = frozenset(topics)

    def subscribe_pattern(self, pattern: re.Pattern[str]) -> None:
        """Subscribe to all topics whose whole name matches, including future ones."""
        self._begin(SubscriptionKind.PATTERN)
        if pattern != self.pattern:
            self.topics = frozenset()
        self.pattern = pattern
        self.broker_pattern = ""

    def subscribe_broker_pattern(self, pattern: str) -> None:
        """Subscribe to all topics that match the expression, which the coordinator resolves."""
        self._begin(SubscriptionKind.PATTERN)
        self.topics = frozenset()
        self.pattern = None
        self.broker_pattern = pattern

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, even if other consumers read them too."""
        self._begin(SubscriptionKind.MANUAL)
        self.assigned = frozenset(partitions)

    def unsubscribe(self) -> None:
        self.kind = SubscriptionKind.NONE
        self.topics = frozenset()
        self.pattern = None
        self.broker_pattern = ""
        self.assigned = frozenset()

    def match(self, existing: Collection[str]) -> None:
        if self.pattern is not None:
            self.topics = frozenset(filter(self.pattern.fullmatch, existing))

    def wants(self, topic: str) -> bool:
        """Whether the subscription covers a topic, even one that is not known yet."""
        if topic in self.topics:
            return True
        return self.pattern is not None and self.pattern.fullmatch(topic) is not None

    def _begin(self, kind: SubscriptionKind) -> None:
        if self.kind not in {SubscriptionKind.NONE, kind}:
            raise IllegalStateError(
                f"subscribing by {kind.value} does not go with the present subscription by"
                f" {self.kind.value}; call unsubscribe() first"
            )
        self.kind = kind
