"""An even assignment in which every member keeps as much as possible (KIP-54).

Eager: members give up everything before they join, so only the user data says what they owned.
"""

from collections.abc import Collection, Mapping, Sequence

from kohort.client.core.group.assignors.assignor import Assignment, Assignor, GroupMember
from kohort.client.core.group.assignors.balancing import balanced
from kohort.client.core.group.assignors.claims import honoured
from kohort.client.core.group.assignors.user_data import (
    UNKNOWN_GENERATION,
    decode_held,
    encode_held,
)
from kohort.client.core.partitions import TopicPartition


class StickyAssignor(Assignor):
    """`sticky`."""

    name = "sticky"

    def __init__(self) -> None:
        self._had: tuple[TopicPartition, ...] | None = None
        self._generation = UNKNOWN_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002
        return None if self._had is None else encode_held(self._had, self._generation)

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        self._had = tuple(partitions)
        self._generation = generation

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]
    ) -> Assignment:
        by_id = {member.member_id: member for member in members}
        held = honoured((decode_held(member) for member in members), by_id, partition_counts)
        return balanced(held, members, partition_counts)
