"""What a leader does: partitions are numbers here, since only who has how many decides.

The history of real members may be recorded with real subscriptions and assignments; the rules of
the group do not read them, so replays use short ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol, TypeAlias

Share: TypeAlias = frozenset[int]
NOTHING: Final[Share] = frozenset()
EAGER: Final = "range"
COOPERATIVE: Final = "cooperative-sticky"


class Wire(Protocol):
    """How members and leaders write what they say."""

    protocol_type: str

    def subscription(self, topics_version: int, owned: Share, generation: int) -> bytes:
        """Differs whenever the real one would. `owned` is empty for eager members."""
        ...

    def assignment(self, share: Share) -> bytes: ...


class ShortWire:
    """Placeholders for subscriptions and assignments, shorter than the real ones; they cannot be
    parsed.
    """

    protocol_type: str = "replay"

    def subscription(self, topics_version: int, owned: Share, generation: int) -> bytes:
        if not owned:
            return b"%d" % topics_version
        return b"%d %d %d" % (topics_version, generation, hash(owned))

    def assignment(self, share: Share) -> bytes:
        return b"%d" % len(share)


def assign_eagerly(member_ids: list[str], partition_count: int) -> dict[str, Share]:
    """Contiguous shares, as even as can be, in the order of the ids."""
    ids = sorted(member_ids)
    least, more = divmod(partition_count, len(ids))
    shares, first = {}, 0
    for index, member_id in enumerate(ids):
        size = least + (index < more)
        shares[member_id] = frozenset(range(first, first + size))
        first += size
    return shares


def assign_cooperatively(owned: Mapping[str, Share], partition_count: int) -> dict[str, Share]:
    """Members keep what they own up to their fair share. What has to move is given to no member
    yet: its owner gives it up and joins again, and then it is free (KIP-429).
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
