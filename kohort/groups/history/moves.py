"""Moves of partitions in a rebalance, and how long each had no owner."""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from kohort.groups.history.model import MemberPartitions, PartitionCounts
from kohort.groups.history.names import PARTITIONS_COUNTED, PARTITIONS_LISTED, cut_id
from kohort.groups.history.shares import NOTHING, Share, TopicPartition, parse_share
from kohort.groups.steps import FEW


class Taken(NamedTuple):
    """A partition that a cooperative member gave up and that has no new owner yet."""

    from_member: str
    at_ms: int | None
    """Time at which the member learned that it has to give up the partition, or ceased to be a
    member; None if another rebalance began before the member got the assignment without the
    partition."""
    sequence: int
    """Sequence number of the rebalance that revoked the partition."""


TakenPartitions: TypeAlias = Mapping[TopicPartition, Taken]
NONE_TAKEN: Final[TakenPartitions] = {}


class Move(NamedTuple):
    """How a rebalance changed the partitions of one member."""

    kept: int
    given_up: Share
    gained: Share


NO_MOVE: Final = Move(0, NOTHING, NOTHING)


@dataclass(slots=True, eq=False)
class Moves:
    """The partitions that each member gave up or gained in one rebalance."""

    taken_before: TakenPartitions
    is_known: bool
    by_member: dict[str, Move] = field(default_factory=dict)
    given_up_by: dict[TopicPartition, str] = field(default_factory=dict)
    gained_by: dict[TopicPartition, str] = field(default_factory=dict)
    kept_count: int = 0
    moved_count: int = 0
    gained_count: int = 0
    given_up_count: int = 0
    _partition_count: int = 0
    _parsed: dict[bytes, Share | None] = field(default_factory=dict)
    """Cache of parsed assignments by their bytes, often equal before and after the rebalance."""

    def add(self, member_id: str, before: bytes, after: bytes) -> None:
        """Add a member, with its assignments before and after the rebalance."""
        if not self.is_known:
            return
        old, new = self._parse(before), self._parse(after)
        self._partition_count += 0 if new is None else len(new)
        if old is None or new is None or self._partition_count > PARTITIONS_COUNTED:
            self.is_known = False
            return
        move = Move(len(old & new), old - new, new - old)
        self.by_member[member_id] = move
        self.kept_count += move.kept
        self.gained_count += len(move.gained)
        self.given_up_count += len(move.given_up)
        for partition in move.given_up:
            self.given_up_by[partition] = member_id
        for partition in move.gained:
            self.gained_by[partition] = member_id

    def _parse(self, assignment: bytes) -> Share | None:
        found = self._parsed.get(assignment, _UNSEEN)
        if found is _UNSEEN:
            found = self._parsed[assignment] = parse_share(assignment)
        assert not isinstance(found, str)
        return found

    def count_moved(self, member_id: str) -> None:
        """Count the partitions that a member gained from former owners; call it after `add` for all
        members.
        """
        for partition in self.of(member_id).gained:
            self.moved_count += self._owner_before(partition) not in {None, member_id}

    def of(self, member_id: str) -> Move:
        return self.by_member.get(member_id, NO_MOVE) if self.is_known else NO_MOVE

    def counts(self) -> PartitionCounts:
        if not self.is_known:
            return PartitionCounts()
        return PartitionCounts(
            known=True,
            kept=self.kept_count,
            moved=self.moved_count,
            gained=self.gained_count,
            given_up=self.given_up_count,
        )

    def listed(self, member_id: str) -> MemberPartitions:
        if not self.is_known:
            return MemberPartitions()
        move = self.of(member_id)
        return MemberPartitions(
            known=True,
            kept=move.kept,
            given_up=_names(move.given_up),
            given_up_count=len(move.given_up),
            gained=_names(move.gained),
            gained_count=len(move.gained),
        )

    def _owner_before(self, partition: TopicPartition) -> str | None:
        owner = self.given_up_by.get(partition)
        if owner is None:
            taken = self.taken_before.get(partition)
            owner = None if taken is None else taken.from_member
        return owner

    def longest_stop_ms(
        self, gained: Iterable[TopicPartition], at_ms: int, taken_at: Mapping[str, int]
    ) -> int:
        """Return the longest time that a partition of `gained` had been without an owner at
        `at_ms`.

        Args:
            taken_at: when each member gave up its revoked partitions in this rebalance.
        """
        longest_ms = 0
        for partition in gained:
            since_ms: int | None = None
            owner = self.given_up_by.get(partition)
            if owner is not None:
                since_ms = taken_at.get(owner)
            elif partition in self.taken_before:
                since_ms = _since_ms(self.taken_before[partition], taken_at)
            if since_ms is not None:
                longest_ms = max(longest_ms, at_ms - since_ms)
        return longest_ms

    def still_taken(
        self, taken_at: Mapping[str, int], sequence: int
    ) -> Generator[None, None, TakenPartitions]:
        """Return the partitions without an owner after this rebalance, in steps."""
        left: dict[TopicPartition, Taken] = {}
        for count, (partition, taken) in enumerate(self.taken_before.items()):
            if partition not in self.gained_by:
                left[partition] = taken._replace(at_ms=_since_ms(taken, taken_at))
            if count % FEW == 0:
                yield
        for count, (partition, owner) in enumerate(self.given_up_by.items()):
            if partition not in self.gained_by:
                left[partition] = Taken(owner, taken_at.get(owner), sequence)
            if count % FEW == 0:
                yield
        return left


_UNSEEN: Final = "unseen"


def _since_ms(taken: Taken, taken_at: Mapping[str, int]) -> int | None:
    return taken_at.get(taken.from_member) if taken.at_ms is None else taken.at_ms


def _names(partitions: Share) -> tuple[str, ...]:
    chosen = sorted(partitions)[:PARTITIONS_LISTED]
    return tuple(f"{cut_id(topic)}-{index}" for topic, index in chosen)
