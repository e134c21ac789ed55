"""Base class and types for following a group of any kind: its members, their signs of life, polls,
and the positions of records in __consumer_offsets.
"""

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from kohort.groups.classic.states import ClassicState
from kohort.groups.consumer.records import ConsumerMemberRecord, EpochTombstone
from kohort.groups.events import (
    Certainty,
    Event,
    GroupRestored,
    JoinPhaseEnd,
    JoinPhaseEnded,
    MemberRef,
    RebalanceEnd,
    RebalanceEnded,
    RebalanceStarted,
    Trigger,
)
from kohort.groups.history.shares import TopicPartition
from kohort.groups.kinds import EMPTY, GroupKind
from kohort.groups.records import DurableRecord, GroupRecord, GroupTombstone, StoredMember
from kohort.groups.requests import Now
from kohort.groups.share.records import EPOCH, ShareTombstone
from kohort.watch.core.commits import Signs
from kohort.watch.core.fate import Fate


class Place(NamedTuple):
    """Where a record of __consumer_offsets is."""

    partition: int
    offset: int
    leader_epoch: int = -1
    """Leader epoch of the batch; it increases when another broker becomes the coordinator."""
    in_transaction: bool = False
    gap_offset: int = -1
    """Offset of the last batch with records missing in it or just before it; -1 if none."""
    epoch_ms: int = -1
    """Timestamp of the partition's first record with this leader epoch."""


class Seen(NamedTuple):
    record: DurableRecord
    at_ms: int
    """The timestamp of the record, by the coordinator's clock."""
    place: Place


class Poll(NamedTuple):
    """What ListGroups and DescribeGroups returned about a group that was rebalancing."""

    at_ms: int
    state: str
    member_ids: frozenset[str]


TimedEvent: TypeAlias = tuple[Event, Now]
"""An event of the history, and its time by the coordinator's clock."""


def ends_group(record: DurableRecord) -> bool:
    """Whether the record removes its group, of whatever kind."""
    if isinstance(record, ShareTombstone):
        return record.record_type == EPOCH
    return isinstance(record, GroupTombstone | EpochTombstone)


def at(event: Event, at_ms: int) -> TimedEvent:
    """Return the event with its time, by the coordinator's clock."""
    return event, Now(at_ms, at_ms)


def ref(member: StoredMember | ConsumerMemberRecord) -> MemberRef:
    return MemberRef(member.member_id, member.instance_id, member.client_id, member.client_host)


def likely(trigger: Trigger) -> Trigger:
    """Return the trigger with the certainty LIKELY if it is CERTAIN."""
    is_certain = trigger.certainty is Certainty.CERTAIN
    return trigger._replace(certainty=Certainty.LIKELY) if is_certain else trigger


def _assignments(record: GroupRecord) -> dict[str, bytes]:
    return {member.member_id: member.assignment for member in record.members}


def restored(record: GroupRecord) -> GroupRestored:
    return GroupRestored(
        record.generation, record.protocol_type, record.leader_id, _assignments(record)
    )


def started(old: GroupRecord, trigger: Trigger, generation: int) -> RebalanceStarted:
    """Return the event that a trigger began a rebalance after `old`, the group's last record."""
    return RebalanceStarted(
        trigger,
        ClassicState.STABLE.value if old.members else EMPTY,
        generation,
        tuple([ref(one) for one in old.members if one.member_id not in trigger.removed]),
        GroupKind.CLASSIC,
    )


def ended(
    record: GroupRecord, end: JoinPhaseEnd, joined_ms: int, stored_ms: int
) -> Iterator[TimedEvent]:
    """Yield the events for the end of the rebalance whose result is `record`."""
    if not record.members:
        yield at(RebalanceEnded(RebalanceEnd.EMPTY, record.generation, {}), joined_ms)
        return
    joined = JoinPhaseEnded(
        end,
        record.generation,
        record.protocol_name,
        record.leader_id,
        tuple([ref(member) for member in record.members]),
        (),
        (),
        record.protocol_type,
    )
    yield at(joined, joined_ms)
    stable = RebalanceEnded(RebalanceEnd.STABLE, record.generation, _assignments(record))
    yield at(stable, stored_ms)


class FollowedGroup:
    __slots__ = ("_owners", "_signs", "fates")

    def __init__(self) -> None:
        self._owners: dict[TopicPartition, str] = {}
        """Member ids of the owners, by partition."""
        self._signs: dict[str, Signs] = {}
        """Signs of life by member id."""
        self.fates: dict[str, Fate] = {}
        """How members left in rebalances that have no record yet, by member id."""

    def signs_of(self, partition: TopicPartition) -> Signs | None:
        """Return the signs of life of the member that owns a partition; a commit of the partition
        is one of them.
        """
        owner = self._owners.get(partition)
        return None if owner is None else self._signs.get(owner)

    def restart(self, at_ms: int) -> None:
        """Record that another coordinator took over, which restarts all sessions."""
        for signs in self._signs.values():
            signs.restarted_ms = at_ms
