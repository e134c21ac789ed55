"""The memory that members of all groups take: what they tell their assignors, and what they are
assigned.

A member stays for its session timeout, half an hour if it wants, whether its client is connected or
not; a client that may join groups under a prefix has as many groups as it likes. The bounds of one
group bound none of that.
"""

from __future__ import annotations

from typing import Final

SMALL_BYTES: Final = 16 * 1024
"""What nearly every member takes less than."""
BYTES_MAX: Final = 512 * 1024 * 1024


class MemberMemory:
    """An account of bytes. Large members share half of it, so that a client that fills it with them
    keeps ordinary ones from nothing.
    """

    __slots__ = ("_bytes_max", "used_bytes")

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self.used_bytes = 0
        """What all members take. Changed by their rosters."""

    def has_room(self, more_bytes: int) -> bool:
        """Whether a member, or an assignment, may take so many bytes more than before."""
        if more_bytes <= 0:
            return True
        limit_bytes = self._bytes_max if more_bytes <= SMALL_BYTES else self._bytes_max // 2
        return self.used_bytes + more_bytes <= limit_bytes
