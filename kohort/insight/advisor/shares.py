"""The leader's part in a replay: assigns partitions, which are plain numbers here.

The group core does not parse subscriptions and assignments, so replays use short placeholders. A
subclass of `Encoding` can write real ones, to record a history of simulated members.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

Share: TypeAlias = frozenset[int]
NOTHING: Final[Share] = frozenset()
EAGER: Final = "range"
COOPERATIVE: Final = "cooperative-sticky"


class Encoding:
    """Encodes the metadata of members and the assignments of leaders: by default as placeholders,
    shorter than real ones and not parseable.
    """

    protocol_type: str = "replay"

    def subscription(self, topics_version: int, owned: Share, generation: int) -> bytes:
        """Return bytes that change whenever the subscription of a real member would change.
        `owned` is empty for eager members.
        """
        if not owned:
            return b"%d" % topics_version
        return b"%d %d %d" % (topics_version, generation, hash(owned))

    def assignment(self, share: Share) -> bytes:
        return b"%d" % len(share)


def assign_eagerly(member_ids: list[str], partition_count: int) -> dict[str, Share]:
    """Assign contiguous ranges, as even as possible, in the order of the ids."""
    ids = sorted(member_ids)
    least, more = divmod(partition_count, len(ids))
    shares, first = {}, 0
    for index, member_id in enumerate(ids):
        size = least + (index < more)
        shares[member_id] = frozenset(range(first, first + size))
        first += size
    return shares


def assign_cooperatively(owned: Mapping[str, Share], partition_count: int) -> dict[str, Share]:
    """Let members keep their partitions up to their fair share. Partitions that must move stay
    unassigned: their owner revokes them and rejoins, and the next assignment assigns them
    (KIP-429).
    """
    ids = sorted(owned, key=lambda member_id: (-len(owned[member_id]), member_id))
    least, more = divmod(partition_count, len(ids))
    taken = frozenset().union(*owned.values())
    free = [number for number in range(partition_count) if number not in taken]
    shares = {}
    for rank, member_id in enumerate(ids):
        quota = least + (rank < more)
        kept = sorted(owned[member_id])[:quota]
        given, free = free[: quota - len(kept)], free[quota - len(kept) :]
        shares[member_id] = frozenset([*kept, *given])
    return shares
