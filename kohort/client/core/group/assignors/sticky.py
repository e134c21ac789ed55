"""Even assignments in which every member keeps as much as possible (KIP-54)."""

from collections.abc import Collection, Mapping, Sequence

from kohort.client.core.group.assignors.assignor import (
    Assignment,
    Assignor,
    GroupMember,
    RebalanceProtocol,
)
from kohort.client.core.group.assignors.balancing import balanced
from kohort.client.core.group.assignors.claims import (
    UNKNOWN_GENERATION,
    Claim,
    decode_generation,
    decode_held,
    encode_generation,
    encode_held,
    honoured,
)
from kohort.client.core.partitions import TopicPartition


class StickyAssignor(Assignor):
    """`sticky`. Members give up everything before they join; user data says what they had."""

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


class CooperativeStickyAssignor(Assignor):
    """`cooperative-sticky`, which does not interrupt partitions that stay where they are (KIP-429).
    Also supports the eager protocol, so that a group can migrate to it.

    A partition that moves is assigned to no member in the first round, in which its owner learns
    that it has lost it. The owner gives it up and rejoins; the second round assigns it.
    """

    name = "cooperative-sticky"
    protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._generation = UNKNOWN_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002
        # From v2 on the subscription itself has the generation; older leaders read it here.
        return encode_generation(self._generation)

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:  # noqa: ARG002
        self._generation = generation

    def assign(
        self, partition_counts: Mapping[str, int], members: Sequence[GroupMember]
    ) -> Assignment:
        by_id = {member.member_id: member for member in members}
        held = honoured(map(_claim, members), by_id, partition_counts)
        assignment = balanced(held, members, partition_counts)
        claimants: dict[TopicPartition, set[str]] = {}
        for member in members:
            for partition in member.owned:
                claimants.setdefault(partition, set()).add(member.member_id)
        return {
            member_id: _without_transfers(member_id, partitions, held[member_id], claimants)
            for member_id, partitions in assignment.items()
        }


def _claim(member: GroupMember) -> Claim:
    generation = member.generation
    if generation == UNKNOWN_GENERATION:
        generation = decode_generation(member.user_data)
    return Claim(member.member_id, generation, member.owned)


def _without_transfers(
    member_id: str,
    partitions: Sequence[TopicPartition],
    held: Collection[TopicPartition],
    claimants: Mapping[TopicPartition, set[str]],
) -> list[TopicPartition]:
    """Return the partitions that a member may have now: no other member holds them."""
    kept = set(held)
    return [
        partition
        for partition in partitions
        if partition in kept or not claimants.get(partition, set()) - {member_id}
    ]
