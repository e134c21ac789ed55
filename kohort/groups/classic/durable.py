"""The durable state of a classic membership: its record, and the functions that change it.

`apply` is used live, when an append is known to be in the log, and on replay. On replay only the
last record of each key matters, so a membership is restored from one record.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kohort.groups.classic.data import ClassicData, HeldJoin
from kohort.groups.classic.member import Member, metadata_for
from kohort.groups.classic.protocols import hash_partition_counts, union_of_topics
from kohort.groups.classic.states import ClassicState
from kohort.groups.events import MemberReplaced
from kohort.groups.records import DurableRecord, GroupRecord, StoredMember
from kohort.groups.requests import JoinResult, Now
from kohort.protocol.errors import ErrorCode


def group_record(
    group: ClassicData,
    *,
    assignments: Mapping[str, bytes] | None = None,
    topics_hash: bytes | None = None,
) -> GroupRecord:
    """Create the record of the group's present state, or of its state with these assignments."""
    name = group.protocol_name
    members = [
        StoredMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            metadata_for(name, member.protocols),
            member.assignment if assignments is None else assignments[member.member_id],
        )
        for member in group.roster
    ]
    if assignments is None:
        topics_hash = _hash_for_restored(group, members)
    return GroupRecord(
        group_id=group.group_id,
        protocol_type=group.protocol_type,
        generation=group.generation,
        protocol_name=name,
        leader_id=group.roster.leader_id,
        state_timestamp_ms=group.state_timestamp_ms,
        members=tuple(members),
        topics_hash=topics_hash,
        begun=group.begun,
    )


def _hash_for_restored(group: ClassicData, members: Sequence[StoredMember]) -> bytes | None:
    """Return the hash of partition counts for the stored subscriptions of `members`: a restored
    group has no others. They differ from the subscriptions at the beginning of the generation if a
    static member has returned with other topics.
    """
    ours = group.topics_hash
    if ours is None:
        return None
    wanted = union_of_topics({member.subscription for member in members})
    if wanted == group.subscribed_topics():
        return ours
    if ours != hash_partition_counts(group.subscribed_topics(), group.partition_count):
        return ours  # Partition counts have already changed: keep the hash that shows it.
    return hash_partition_counts(wanted, group.partition_count)


def apply(group: ClassicData, record: GroupRecord, now: Now) -> None:
    """Change the group to the generation that `record` describes. Unless the group is being
    restored, members change only their assignment: the record has just one of their protocols.
    """
    restoring = group.state is ClassicState.EMPTY
    group.is_stored = True
    group.protocol_type = record.protocol_type
    group.generation = record.generation
    group.protocol_name = record.protocol_name
    group.topics_hash = record.topics_hash
    group.begun = record.begun
    for stored in record.members:
        member = group.roster.get(stored.member_id)
        if member is None:
            assert restoring, f"{stored.member_id} is stored but not a member"
            member = _restored(stored, record.protocol_name)
            group.roster.add(member)
        group.roster.assign(member, stored.assignment)
    state = ClassicState.STABLE if record.members else ClassicState.EMPTY
    if restoring:
        group.state = state
        group.note_subscriptions()
        # In a record of another writer, the leader may be missing from the members; then the first
        # member leads.
        if record.leader_id is not None and record.leader_id in group.roster:
            group.roster.leader_id = record.leader_id
    else:
        group.move_to(state, now)
    group.state_timestamp_ms = record.state_timestamp_ms


def _restored(stored: StoredMember, protocol_name: str | None) -> Member:
    rebalance_timeout_ms = stored.rebalance_timeout_ms
    return Member(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_ms=stored.session_timeout_ms,
        rebalance_timeout_ms=(
            stored.session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms
        ),
        protocols=((protocol_name or "", stored.subscription),),
        is_restored=True,
    )


@dataclass(slots=True, eq=False)
class EmptyWrite:
    """The record of a group without members: a new group, or one whose last member left. The group
    is changed before the record is stored; if it cannot be stored, a restart finds no group, or
    members whose sessions then expire.
    """

    group: ClassicData
    record: GroupRecord

    def make_records(self) -> tuple[DurableRecord, ...]:
        return (self.record,)

    def on_durable(self, now: Now) -> None:
        """Do nothing: no request waits for this write."""

    def on_failed(self, error: ErrorCode, now: Now) -> None:
        """Record that the group is not stored; no request waits for this write."""
        del error, now
        self.group.is_stored = False

    def answer_early(self, error: ErrorCode) -> None:
        """Do nothing: no request waits for this write."""


def store_created(group: ClassicData, now: Now) -> None:
    """Store a group that a join has created; members are stored later, with their assignment."""
    record = GroupRecord(group.group_id, None, 0, None, None, now.wall_ms, ())
    group.is_stored = True
    group.outbox.stage(EmptyWrite(group, record))


def store_emptied(group: ClassicData) -> None:
    """Store the group without members, after the last one has left."""
    assert not len(group.roster)
    group.is_stored = True
    group.outbox.stage(EmptyWrite(group, group_record(group)))


@dataclass(slots=True, eq=False)
class ReplacementWrite:
    """The record with the new ids of the static members that were replaced in one step; see
    `ClassicData.held`.

    The new ids take effect before they are stored, so that a member with an old id is fenced. If
    they cannot be stored, the old members are restored with their ids, protocols and timeouts.
    """

    group: ClassicData

    def make_records(self) -> tuple[DurableRecord, ...]:
        """Return the group's record; nothing if no join waits for it any more, because a rebalance
        has begun.
        """
        if not self.group.held:
            return ()
        assert self.group.state is ClassicState.STABLE
        self.group.outbox.pace()
        return (group_record(self.group),)

    def on_durable(self, now: Now) -> None:
        """Answer the joins that wait for this write."""
        del now
        held, self.group.held = self.group.held, {}
        for join in held.values():
            self._answer(join, join.result)

    def on_failed(self, error: ErrorCode, now: Now) -> None:
        """Restore the previous members."""
        held, self.group.held = self.group.held, {}
        for member_id, join in held.items():
            member = self.group.roster.get(member_id)
            assert member is not None
            swap(self.group, member, join.previous)
            self.group.start_session(join.previous, now.ms)
            self.group.outbox.note(MemberReplaced(member_id, join.previous.ref))
            self._answer(join, JoinResult(error))

    def answer_early(self, error: ErrorCode) -> None:
        """Answer with the error. The client will join again with its instance id, and so replace
        the member that this join has created.
        """
        for join in self.group.held.values():
            self._answer(join, JoinResult(error))

    def _answer(self, join: HeldJoin, result: JoinResult) -> None:
        ticket, join.ticket = join.ticket, None
        if ticket is not None:
            self.group.outbox.reply(ticket, result)


def swap(group: ClassicData, old: Member, new: Member) -> None:
    """Transfer leadership, assignment and pending sync to `new`; `old` has no parked requests."""
    group.stop_session(old)
    new.assignment = old.assignment
    group.roster.replace(old, new)
    if old.member_id in group.pending_sync:
        del group.pending_sync[old.member_id]
        group.pending_sync[new.member_id] = None
