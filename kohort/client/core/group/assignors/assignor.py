"""The interface of assignors.

A custom assignor derives from `Assignor`, sets `name` and implements `assign`. All members of a
group must have an assignor in common, by name.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from kohort.client.core.errors import ConfigError
from kohort.client.core.partitions import TopicPartition


class RebalanceProtocol(IntEnum):
    """The rebalance protocols (KIP-429); the higher one is preferred."""

    EAGER = 0
    """Every member gives up all its partitions before it joins."""
    COOPERATIVE = 1
    """Members keep partitions; those that move are revoked, then assigned by a second rebalance."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member as the leader of its group sees it."""

    member_id: str
    topics: frozenset[str]
    instance_id: str | None = None
    """Instance id of a static member (KIP-345)."""
    owned: tuple[TopicPartition, ...] = ()
    """The owned partitions in the member's subscription; empty in eager groups."""
    generation: int = -1
    """The generation of `owned`, -1 if unknown."""
    user_data: bytes | None = None
    rack: str | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """Sort key: static members first, by instance id, which survives a restart."""
        if self.instance_id is not None:
            return (False, self.instance_id)
        return (True, self.member_id)


Assignment = dict[str, list[TopicPartition]]
"""Partitions by member id. Every member has an entry."""


class Assignor(ABC):
    """Base class of assignors. An instance belongs to one consumer."""

    name: ClassVar[str]
    """The name by which members determine a common assignor."""
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset({RebalanceProtocol.EAGER})

    @abstractmethod
    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]
    ) -> Assignment:
        """Assign the partitions of all topics that any member subscribes to.

        Args:
            partition_counts: by topic; topics that do not exist are missing.
            members: in the order of the JoinGroup response, on which the result should not depend.
        """

    def user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002
        """Return data for the leader's assignor, sent with a join; below 32 kB."""
        return None

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:  # noqa: B027
        """Called with this member's assignment after each rebalance."""


def subscribers_by_topic(
    partition_counts: Mapping[str, int], members: Sequence[GroupMember]
) -> dict[str, list[GroupMember]]:
    """Return the subscribers of each existing topic, in the order of `members`."""
    subscribers: dict[str, list[GroupMember]] = {}
    for member in sorted(members, key=lambda member: member.order):
        for topic in member.topics:
            if topic in partition_counts:
                subscribers.setdefault(topic, []).append(member)
    return subscribers


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(count)]


def common_mode(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """Return the best rebalance protocol that all assignors support (KIP-429).

    Raises:
        ConfigError: they have none in common, or there are no assignors.
    """
    if not assignors:
        raise ConfigError("partition_assignment_strategy is empty; name at least one assignor")
    modes = frozenset(RebalanceProtocol).intersection(
        *(assignor.protocols for assignor in assignors)
    )
    if not modes:
        names = ", ".join(assignor.name for assignor in assignors)
        raise ConfigError(
            f"the assignors {names} have no rebalance protocol in common; remove those that are"
            " only"
            " eager or only cooperative"
        )
    return max(modes)
