"""What a leader does with the members' metadata, eager and cooperative, and what it is made of."""

from collections.abc import Mapping, Sequence

from kohort.protocol.codec import codec, encode_versioned
from tests.support import messages as m

TOPIC = "t"
PARTITIONS = 6
RANGE = "range"
COOPERATIVE = "cooperative-sticky"

_SUBSCRIPTION = codec(m.ConsumerProtocolSubscription, 3)
_ASSIGNMENT = codec(m.ConsumerProtocolAssignment, 1)


def subscription(topics: Sequence[str], owned: Sequence[int] = (), generation: int = -1) -> bytes:
    parts = [m.TopicPartition(topic=TOPIC, partitions=list(owned))] if owned else []
    return encode_versioned(
        m.ConsumerProtocolSubscription(
            topics=list(topics), owned_partitions=parts, generation_id=generation
        ),
        3,
    )


def share(partitions: Sequence[int]) -> bytes:
    parts = [m.TopicPartition(topic=TOPIC, partitions=list(partitions))] if partitions else []
    return encode_versioned(m.ConsumerProtocolAssignment(assigned_partitions=parts), 1)


def partitions_in(data: bytes) -> list[int]:
    if not data:
        return []
    found, _ = _ASSIGNMENT.decode(data, 2)
    return [number for part in found.assigned_partitions for number in part.partitions]


def assign(
    name: str, metadata: Mapping[str, bytes], turn: int, count: int = PARTITIONS
) -> dict[str, list[int]]:
    """Shares of `count` partitions by member id. No two turns of an eager assignor
    are alike, so that members which mix them up are noticed.
    """
    if name == COOPERATIVE:
        return _assign_cooperatively(metadata, count)
    ids = sorted(metadata)
    shares: dict[str, list[int]] = {member_id: [] for member_id in ids}
    for partition in range(count):
        shares[ids[(partition + turn) % len(ids)]].append(partition)
    return shares


def _assign_cooperatively(metadata: Mapping[str, bytes], count: int) -> dict[str, list[int]]:
    """A member that has something keeps it up to its fair share. What has to move is given to no
    member yet: its owner gives it up and joins again, and then it is free (KIP-429).
    """
    owner_of = _owners(metadata)
    ids = sorted(metadata)
    least, more = divmod(count, len(ids))
    kept: dict[str, list[int]] = {member_id: [] for member_id in ids}
    for partition, member_id in sorted(owner_of.items()):
        kept[member_id].append(partition)
    # Those who have most are the ones that may have one more.
    by_load = sorted(ids, key=lambda member_id: (-len(kept[member_id]), member_id))
    quota = {member_id: least + (rank < more) for rank, member_id in enumerate(by_load)}
    for member_id in ids:
        del kept[member_id][quota[member_id] :]
    free = [partition for partition in range(count) if partition not in owner_of]
    for member_id in by_load:
        while free and len(kept[member_id]) < quota[member_id]:
            kept[member_id].append(free.pop(0))
    return kept


def _owners(metadata: Mapping[str, bytes]) -> dict[int, str]:
    """The claim of the highest generation counts; of two that are equal, neither (KIP-792)."""
    claims: dict[int, list[tuple[int, str]]] = {}
    for member_id, data in metadata.items():
        told, _ = _SUBSCRIPTION.decode(data, 2)
        for part in told.owned_partitions:
            for partition in part.partitions:
                claims.setdefault(partition, []).append((told.generation_id, member_id))
    owners = {}
    for partition, claimed in claims.items():
        claimed.sort()
        if len(claimed) == 1 or claimed[-1][0] > claimed[-2][0]:
            owners[partition] = claimed[-1][1]
    return owners
