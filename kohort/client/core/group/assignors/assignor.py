"""What an assignor is, and what it is told of the members.

A custom assignor derives from `Assignor`, sets `name` and writes `assign`. All members of a group
must have one in common, by name.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from kohort.client.core.partitions import TopicPartition


class RebalanceProtocol(IntEnum):
    """How members behave in a rebalance (KIP-429); the higher one is preferred."""

    EAGER = 0
    """Every member gives up everything first."""
    COOPERATIVE = 1
    """Members keep what they have and give up what they are told to, in a second round."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member as the leader of its group sees it."""

    member_id: str
    topics: frozenset[str]
    """Subscribed to."""
    instance_id: str | None = None
    """Instance id of a static member (KIP-345)."""
    owned: tuple[TopicPartition, ...] = ()
    """What it said to hold when it joined; nothing in eager groups."""
    generation: int = -1
    """That `owned` stems from, -1 if it did not say."""
    user_data: bytes | None = None
    rack: str | None = None

    @property
    def order(self) -> tuple[bool, str]:
        """Static members first, by their instance id, which survives a restart; then the others."""
        if self.instance_id is not None:
            return (False, self.instance_id)
        return (True, self.member_id)


Assignment = dict[str, list[TopicPartition]]
"""Partitions by member id. Every member has an entry."""


class Assignor(ABC):
    """One way to share partitions out. An instance belongs to one consumer."""

    name: ClassVar[str]
    """By which members find out what they have in common."""
    protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset({RebalanceProtocol.EAGER})

    @abstractmethod
    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]
    ) -> Assignment:
        """Share out the partitions of all topics that a member subscribed to.

        Args:
            partition_counts: by topic; topics that do not exist are not in it.
            members: in the order of the broker's answer, on which the result should not depend.
        """

    def user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002
        """What this member tells the leader's assignor when it joins; up to 32 kB is sensible."""
        return None

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:  # noqa: B027
        """This member's share, after each rebalance."""


def subscribers_by_topic(
    partition_counts: Mapping[str, int], members: Sequence[GroupMember]
) -> dict[str, list[GroupMember]]:
    """Members in their order, for each topic that exists and that a member wants."""
    found: dict[str, list[GroupMember]] = {}
    for member in sorted(members, key=lambda member: member.order):
        for topic in member.topics:
            if topic in partition_counts:
                found.setdefault(topic, []).append(member)
    return found


def partitions_of(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(count)]
