"""Limits the memory of the member ids that all groups have handed out and that are not used yet.

A client gets an id with MEMBER_ID_REQUIRED (KIP-394) and joins with it. If it does not, the id is
kept until the session timeout, which the client chooses. Each group limits the number of its ids.
Beyond that, the memory of all groups' ids is limited: the oldest are dropped first, in any group.
"""

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

ID_BYTES: Final = 1_000
"""Memory of an unused id in an existing group, with the id's timer and its entry here; 940 to 955
bytes were measured, with the longest client ids and reasons."""
GROUP_BYTES: Final = 4_800
"""Memory of a group that was created for an id, without this id and the group's name, which may
have 32 kB: 5,720 bytes were measured for a group with a short name and one id."""
UNUSED_IDS_BYTES_MAX: Final = 256 * 1024 * 1024
"""Maximum memory of the unused ids of a broker: 268,000 ids in a few groups (256 MiB / 1,000),
46,000 ids if each is in another group (256 MiB / 5,800), 2,000 if these groups have the longest
names. Ordinary clients use an id within milliseconds, so that even a burst stays far below
this. The limits on groups (200,000) and on the ids of each group (100,000) are not enough: one id
in each group takes 1.1 GB, and the maximum in each takes more memory than any machine has."""
_WIDE: Final = 4
"""Maximum bytes that Python uses per character of a string that is not ASCII."""


class UnusedIds:
    """The member ids not joined with yet, oldest first, and an estimate of their memory."""

    __slots__ = ("_bytes_max", "_counts", "_groups", "_names_bytes")

    def __init__(self, bytes_max: int = UNUSED_IDS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._groups: OrderedDict[str, str] = OrderedDict()
        self._counts: dict[str, int] = {}
        """How many ids each group has."""
        self._names_bytes = 0

    def __len__(self) -> int:
        return len(self._groups)

    @property
    def size_bytes(self) -> int:
        """Estimated memory of all unused ids."""
        ids_bytes = len(self._groups) * ID_BYTES
        return ids_bytes + len(self._counts) * GROUP_BYTES + self._names_bytes

    @property
    def are_too_many(self) -> bool:
        """Whether ids have to be dropped: see `take_oldest`."""
        return self.size_bytes > self._bytes_max

    def add(self, group_id: str, member_id: str) -> None:
        """Add an id that a group hands out. Member ids are unique."""
        self._groups[member_id] = group_id
        count = self._counts.get(group_id, 0)
        self._counts[group_id] = count + 1
        if not count:
            self._names_bytes += _memory_of(group_id)

    def discard(self, member_id: str) -> None:
        """Remove an id, if known, that was used, given back or dropped, or has expired."""
        group_id = self._groups.pop(member_id, None)
        if group_id is not None:
            self._count_down(group_id)

    def take_oldest(self) -> Iterator[tuple[str, str]]:
        """Remove the oldest ids while there are too many; yield each as (group id, member id)."""
        while self._groups and self.are_too_many:
            member_id, group_id = self._groups.popitem(last=False)
            self._count_down(group_id)
            yield group_id, member_id

    def _count_down(self, group_id: str) -> None:
        left = self._counts[group_id] - 1
        if left:
            self._counts[group_id] = left
        else:
            del self._counts[group_id]
            self._names_bytes -= _memory_of(group_id)


def _memory_of(name: str) -> int:
    return len(name) if name.isascii() else _WIDE * len(name)
