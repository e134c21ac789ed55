"""The roster of a classic group: members, static and pending members, common protocols.

It stores members and keeps its counts consistent; the rules of rebalances are elsewhere.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Final, TypeVar

from kohort.groups.classic.member import Member, PendingMember
from kohort.groups.classic.protocols import Names, choose_protocol
from kohort.groups.member_memory import MemberMemory
from kohort.groups.requests import Ticket
from kohort.protocol.errors import ErrorCode

K = TypeVar("K", bound=Hashable)


class Roster:
    """The members in order of arrival; a replacement counts as a new arrival."""

    __slots__ = (
        "_lists",
        "_members",
        "_offers",
        "_static",
        "kept_bytes",
        "leader_id",
        "memory",
        "metadata_bytes",
        "parked_joins",
        "pending",
    )

    def __init__(self, memory: MemberMemory | None = None) -> None:
        """`memory` counts the bytes of the members of all groups."""
        self._members: dict[str, Member] = {}
        self._static: dict[str, str] = {}
        self._offers: Counter[str] = Counter()
        """How many members offer each protocol."""
        self._lists: Counter[Names] = Counter()
        """How many members offer exactly this list of protocols, in this order."""
        self.pending: dict[str, PendingMember] = {}
        """The pending members by id; oldest first."""
        self.leader_id: str | None = None
        self.parked_joins = 0
        self.metadata_bytes = 0
        self.kept_bytes = 0
        """Bytes of this group's metadata and assignments, which `memory` includes."""
        self.memory = MemberMemory() if memory is None else memory

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def holder_of(self, instance_id: str | None) -> Member | None:
        member_id = self._static.get(instance_id) if instance_id is not None else None
        return None if member_id is None else self._members[member_id]

    def find(self, member_id: str, instance_id: str | None) -> Member | ErrorCode:
        """Return the member that sent a request, or the error.

        The instance id is checked first: a member whose instance id was taken over must learn
        that it is fenced, not merely unknown. A static member may omit its instance id.
        """
        if instance_id is not None:
            holder_id = self._static.get(instance_id)
            if holder_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if holder_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return self._members.get(member_id) or ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def leader(self) -> Member | None:
        return None if self.leader_id is None else self._members.get(self.leader_id)

    def add(self, member: Member) -> None:
        """Add a member; the first member of the group becomes the leader."""
        assert member.member_id not in self._members
        self._members[member.member_id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._static
            self._static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id
        if member.join_ticket is not None:
            self.parked_joins += 1
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        """Remove a member without parked requests. If it was the leader, the first remaining member
        leads.
        """
        assert member.join_ticket is None
        assert member.sync_ticket is None
        del self._members[member.member_id]
        if member.instance_id is not None:
            del self._static[member.instance_id]
        self._count(member, -1)
        if self.leader_id == member.member_id:
            self.leader_id = next(iter(self._members), None)

    def replace(self, old: Member, new: Member) -> None:
        """Replace `old` by `new`, and transfer leadership and instance id to `new`."""
        led = self.leader_id == old.member_id
        self.remove(old)
        self.add(new)
        if led:
            self.leader_id = new.member_id

    def park_join(self, member: Member, ticket: Ticket) -> None:
        """Park the join of `member` until the next generation."""
        assert member.join_ticket is None
        member.join_ticket = ticket
        self.parked_joins += 1

    def unpark_join(self, member: Member) -> Ticket | None:
        """Remove and return the ticket of a parked join, None if there is none."""
        ticket, member.join_ticket = member.join_ticket, None
        if ticket is not None:
            self.parked_joins -= 1
        return ticket

    def unpark_all_joins(self) -> None:
        """Clear all parked joins; the caller has taken their tickets and answers them."""
        for member in self:
            member.join_ticket = None
        self.parked_joins = 0

    def set_protocols(self, member: Member, protocols: tuple[tuple[str, bytes], ...]) -> None:
        self._count(member, -1)
        member.protocols = protocols
        member.is_restored = False
        self._count(member, 1)

    def assign(self, member: Member, assignment: bytes) -> None:
        self._take(len(assignment) - len(member.assignment))
        member.assignment = assignment

    def close_account(self) -> None:
        """Subtract the dropped group's bytes from the total of all groups."""
        self.memory.used_bytes -= self.kept_bytes
        self.memory = MemberMemory()
        self.memory.used_bytes = self.kept_bytes

    def all_offer_one_of(self, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Whether all members offer one of `protocols`; true without members."""
        count = len(self._members)
        for name, _ in protocols:  # noqa: SIM110 - every join asks, and nearly all offer one name.
            if self._offers[name] == count:
                return True
        return False

    def common_protocols(self) -> Names:
        """Return the names that every member offers, in the leader's order."""
        count = len(self._members)
        return tuple(name for name in self._ranking(self.leader) if self._offers[name] == count)

    def choose_protocol(self) -> str | None:
        return choose_protocol(self._lists, self._ranking(self.leader))

    def choose_protocol_with(self, new: Member, old: Member) -> str | None:
        """Return the protocol that would be chosen with `new` in the place of `old`."""
        lists = self._lists.copy()
        _add(lists, old.protocol_names, -1)
        _add(lists, new.protocol_names, 1)
        return choose_protocol(lists, self._ranking(new if self.leader is old else self.leader))

    def _ranking(self, leader: Member | None) -> Names:
        leader = leader or next(iter(self), None)
        return () if leader is None else leader.protocol_names

    @property
    def all_joined(self) -> bool:
        """Whether all members have joined and there are no pending members."""
        return self.parked_joins == len(self._members) and not self.pending

    def rebalance_timeout_ms(self) -> int:
        """Return the longest rebalance timeout of the members, 0 without members."""
        return max([member.rebalance_timeout_ms for member in self], default=0)

    def _take(self, change_bytes: int) -> None:
        self.kept_bytes += change_bytes
        self.memory.used_bytes += change_bytes

    def _count(self, member: Member, change: int) -> None:
        metadata_bytes = member.metadata_bytes
        self.metadata_bytes += change * metadata_bytes
        self._take(change * (metadata_bytes + len(member.assignment)))
        names = member.protocol_names
        _add(self._lists, names, change)
        for name in names if len(names) < _ALL_DIFFERENT_BELOW else set(names):
            _add(self._offers, name, change)


_ALL_DIFFERENT_BELOW: Final = 2
"""Fewer names than this cannot contain a duplicate."""


def _add(counter: Counter[K], key: K, change: int) -> None:
    count = counter[key] + change
    if count:
        counter[key] = count
    else:
        del counter[key]
