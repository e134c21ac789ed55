"""Members' claims to partitions that they owned before, and which claims are honoured.

A member that was away may return and claim partitions that were assigned to others meanwhile. The
generation of the claim decides (KIP-792).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kohort.client.core.group.assignors.assignor import GroupMember
from kohort.client.core.partitions import TopicPartition


class Claim(NamedTuple):
    """The partitions that one member says it owned."""

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
