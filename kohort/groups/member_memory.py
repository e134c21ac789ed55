"""The memory of the members of all groups: their protocols with metadata, and their assignments.

A member stays until its session timeout, which may be half an hour, even if its client is not
connected; and a client that is authorized for a prefix of group ids can join any number of groups.
So limits for each group do not limit the total.
"""

from typing import Final

SMALL_BYTES: Final = 16 * 1024
"""Nearly every member is smaller than this."""
BYTES_MAX: Final = 512 * 1024 * 1024


class MemberMemory:
    """Limits the bytes of all members. An increase by more than SMALL_BYTES is refused if the total
    would exceed half the limit.
    """

    __slots__ = ("_bytes_max", "used_bytes")

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.used_bytes = 0
        """Bytes of all members; updated by classic groups' rosters and by `MemberAccount`."""

    def has_room(self, more_bytes: int) -> bool:
        """Whether a member, or an assignment, may take `more_bytes` more than before."""
        if more_bytes <= 0:
            return True
        limit_bytes = self._bytes_max if more_bytes <= SMALL_BYTES else self._bytes_max // 2
        return self.used_bytes + more_bytes <= limit_bytes


class MemberAccount:
    """Counts the members of all consumer groups, or of all share groups. Their memory counts
    towards one limit for all kinds of groups.
    """

    __slots__ = ("count", "memory")

    def __init__(self, memory: MemberMemory | None = None) -> None:
        self.count = 0
        self.memory = memory or MemberMemory()

    def add(self, members: int, used_bytes: int) -> None:
        """Add to the number of members and the bytes that they use; negative if members leave."""
        self.count += members
        self.memory.used_bytes += used_bytes
