"""The members' claims: who held what before, and which of them count.

A member that was away may come back and claim what was given to others meanwhile. The generation
that it says its claim stems from decides (KIP-792).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kohort.client.core.group.assignors.assignor import GroupMember
from kohort.client.core.partitions import TopicPartition


class Claim(NamedTuple):
    """What one member says to have held."""

    member_id: str
    generation: int
    partitions: Sequence[TopicPartition]


def honoured(
    claims: Iterable[Claim],
    members: Mapping[str, GroupMember],
    partition_counts: Mapping[str, int],
) -> dict[str, list[TopicPartition]]:
    """The claims that hold, sorted, for every member.

    A partition goes to the claim of the highest generation, and to no member if two of that one
    claim it. A claim to what does not exist, or is not subscribed to any more, counts for nothing.
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
