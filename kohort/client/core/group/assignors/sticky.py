"""Even assignments in which every member keeps as much as possible (KIP-54).

A member that was away may return and claim partitions that were assigned to others meanwhile. The
generation of the claim decides (KIP-792).

The sticky assignors send claims as user data, in the Java client's format. Anything else in that
field, such as another assignor's data, counts as no previous assignment: that costs stickiness, not
correctness.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kohort.client.core.group.assignors.assignor import (
    Assignment,
    Assignor,
    GroupMember,
    RebalanceProtocol,
)
from kohort.client.core.group.assignors.balancing import balanced
from kohort.client.core.partitions import TopicPartition, by_topic, from_topics
from kohort.protocol.codec import codec
from kohort.protocol.errors import DecodeError
from kohort.protocol.message import field, record
from kohort.protocol.messages.consumer_protocol import TopicPartition as PartitionsOfTopic
from kohort.protocol.types import Int32


class Claim(NamedTuple):
    member_id: str
    generation: int
    partitions: Sequence[TopicPartition]


def honoured(
    claims: Iterable[Claim],
    members: Mapping[str, GroupMember],
    partition_counts: Mapping[str, int],
) -> dict[str, list[TopicPartition]]:
    """Return the valid claims, sorted, for every member.

    A partition goes to the claim with the highest generation, and to no member if two claims have
    that generation. Claims to partitions that do not exist, or are no longer subscribed to, are
    ignored.
    """
    highest: dict[TopicPartition, int] = {}
    owner: dict[TopicPartition, str | None] = {}
    for claim in claims:
        topics = members[claim.member_id].topics
        for partition in claim.partitions:
            topic, index = partition
            if topic not in topics or not 0 <= index < partition_counts.get(topic, 0):
                continue
            known = highest.get(partition)
            if known is None or claim.generation > known:
                highest[partition] = claim.generation
                owner[partition] = claim.member_id
            elif claim.generation == known and owner[partition] != claim.member_id:
                owner[partition] = None
    held: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    for partition in sorted(owner):
        member_id = owner[partition]
        if member_id is not None:
            held[member_id].append(partition)
    return held


UNKNOWN_GENERATION: Final = -1


@record(versions="0-1", flexible="none")
class StickyUserData:
    """A member's last assignment as `sticky` encodes it. There is no version prefix (KIP-341)."""

    previous_assignment: list[PartitionsOfTopic]
    generation: Int32 = field(default=UNKNOWN_GENERATION, since=1, ignorable=True)


def encode_held(partitions: Collection[TopicPartition], generation: int) -> bytes:
    """Encode the user data of `sticky`."""
    held = StickyUserData(previous_assignment=by_topic(partitions), generation=generation)
    return codec(StickyUserData, 1).encode(held)


def decode_held(member: GroupMember) -> Claim:
    """Decode a member's `sticky` user data into a claim; empty if undecodable."""
    user_data = member.user_data or b""
    for version in (1, 0):
        try:
            held, end = codec(StickyUserData, version).decode(user_data)
        except DecodeError:
            continue
        if end == len(user_data):
            partitions = from_topics(held.previous_assignment)
            return Claim(member.member_id, held.generation, partitions)
    return Claim(member.member_id, UNKNOWN_GENERATION, ())


def encode_generation(generation: int) -> bytes:
    """Encode the user data of `cooperative-sticky`."""
    return generation.to_bytes(4, "big", signed=True)


def decode_generation(user_data: bytes | None) -> int:
    """Return the generation in user data of `cooperative-sticky`; -1 if there is none."""
    if user_data is None or len(user_data) < 4:
        return UNKNOWN_GENERATION
    return int.from_bytes(user_data[:4], "big", signed=True)


class StickyAssignor(Assignor):
    """`sticky`: members revoke all partitions before they join, and list them in user data."""

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

    A partition that moves is assigned to no member in the first round, so that its owner revokes it
    and rejoins; the second round assigns it.
    """

    name = "cooperative-sticky"
    protocols = frozenset({RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        self._generation = UNKNOWN_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:  # noqa: ARG002
        # For leaders that know the subscription only up to v1, which lacks the generation.
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
    """Return `partitions` without those that another member has to give up first."""
    kept = set(held)
    return [
        partition
        for partition in partitions
        if partition in kept or not claimants.get(partition, set()) - {member_id}
    ]
