"""The data of a classic membership, and the basic operations that all its rules use.

How changes become durable is described in :mod:`kohort.groups.group`. Here:

- *Durable state* (generation, protocol, members with their assignments) is changed by
  `durable.apply` once the records are in the log. Two changes take effect before: the new id of a
  static member that replaces another, which is undone if the append fails, and the generation of a
  group that becomes empty, which is not undone, because no member could notice.
- *Volatile state* is parked requests, unused ids, timers, and the state machine before Stable.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kohort.groups.classic.lost_members import LostMembers
from kohort.groups.classic.member import (
    PENDING,
    SYNC_TIMER,
    Member,
    Protocols,
    cut_text,
    metadata_for,
)
from kohort.groups.classic.protocols import GrownSince, PartitionCount, union_of_topics
from kohort.groups.classic.roster import Roster
from kohort.groups.classic.states import LEGAL_PREVIOUS, ClassicState
from kohort.groups.classic.unused_ids import UnusedIds
from kohort.groups.effects import Cancel, Schedule, ScheduleSessions, TimerKey
from kohort.groups.events import MemberFenced, MemberRemoved, MemberTold, RemovalReason
from kohort.groups.member_memory import MemberMemory
from kohort.groups.offsets.table import OffsetsOwner
from kohort.groups.refusals import Refusals
from kohort.groups.requests import CONSUMER, JoinResult, Now, SyncResult, Ticket
from kohort.protocol.errors import ErrorCode

NewMemberId = Callable[[str], str]
"""Creates an id that was never used before and begins with the given text."""

_DEAD: Final = ClassicState.DEAD
"""A module constant, because in Python 3.11 each lookup of an enum member takes 0.1 us."""

MEMBER_ID_PREFIX_BYTES_MAX: Final = 255
"""Maximum length of the client or instance id at the beginning of a member id. Kafka does not
shorten these ids: it refuses the join if the member id exceeds the 32,767 bytes of a protocol
string."""


@dataclass(slots=True, eq=False)
class InitialDelay:
    """An initial rebalance, which ends after a delay and not with the last join (KIP-134). While
    new members join, the delay is extended by one window after another.
    """

    window_ms: int
    remaining_ms: int
    """The rest of the rebalance timeout, which limits the length of further windows."""
    member_added: bool = False
    """Whether a member joined during the present window of the delay."""


_SILENT: Final = frozenset(
    {
        RemovalReason.SESSION_EXPIRED,
        RemovalReason.REBALANCE_TIMEOUT,
        RemovalReason.SYNC_EXPIRED,
    }
)


@dataclass(slots=True, eq=False)
class HeldJoin:
    """A returned static member whose response waits until its new member id is durable."""

    previous: Member
    """The member to restore if the new id does not become durable."""
    ticket: Ticket | None
    """Identifies the join request to answer; None once answered."""
    result: JoinResult


class ClassicData:
    """The state of one classic group; callers use `ClassicMembership`."""

    __slots__ = (
        "_make_member_id",
        "_offers",
        "_topics",
        "_topics_are_parsed",
        "assignment_on_its_way",
        "begun",
        "config",
        "deadlines",
        "generation",
        "group_id",
        "grown_since",
        "held",
        "initial",
        "is_stored",
        "lost",
        "offsets",
        "outbox",
        "partition_count",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "refusals",
        "replaced",
        "roster",
        "state",
        "state_timestamp_ms",
        "topics_hash",
        "unused_ids",
    )

    def __init__(
        self,
        group: OffsetsOwner,
        *,
        new_member_id: NewMemberId,
        partition_count: PartitionCount | None = None,
        grown_since: GrownSince | None = None,
        unused_ids: UnusedIds | None = None,
        member_memory: MemberMemory | None = None,
    ) -> None:
        """No reference to `group` is kept, only to its config, offsets and outbox, so that a
        dropped group is freed at once. `partition_count` returns the number of partitions of a
        topic in this broker; without it there is no check whether topics changed while a leader was
        away. `grown_since` returns the topics that got more partitions, for the history.
        `unused_ids` counts the ids that all groups have handed out, and `member_memory` the memory
        of all groups' members.
        """
        self.group_id = group.group_id
        self.config = group.config
        self.offsets = group.offsets
        self.outbox = group.outbox
        self._make_member_id = new_member_id
        self.partition_count = partition_count
        self.grown_since = grown_since
        self.state = ClassicState.EMPTY
        self.previous_state = ClassicState.EMPTY
        self.state_timestamp_ms = -1
        """Wall-clock time; -1 if the group has never changed state."""
        self.generation = 0
        self.protocol_type: str | None = None
        """The group's protocol type; None if only offsets were committed to it ("simple")."""
        self.protocol_name: str | None = None
        self.roster = Roster(member_memory)
        self.unused_ids = UnusedIds() if unused_ids is None else unused_ids
        """Unused member ids that all groups have handed out; includes `roster.pending`."""
        self.pending_sync: dict[str, None] = {}
        """Members that have not synced in this generation, in order of arrival."""
        self.initial: InitialDelay | None = None
        """The initial delay, while the first members of an empty group are collected."""
        self.held: dict[str, HeldJoin] = {}
        """Joins of returned static members, by their new member ids; answered when these ids
        are durable."""
        self.assignment_on_its_way: int | None = None
        """The generation for which the leader has submitted an assignment; further assignments for
        it are ignored."""
        self.topics_hash: bytes | None = None
        """Hash of the topics at the time of the assignment; see
        `protocols.hash_partition_counts`."""
        self.begun: bytes | None = None
        """The encoded cause of the last rebalance, stored with its generation."""
        self.lost = LostMembers()
        self.replaced: dict[str, str] = {}
        """Instance ids of the latest replaced static members, by the replaced member id."""
        self.refusals = Refusals()
        self.is_stored = False
        """Whether there is a group record in the log, or in an append in progress."""
        self.deadlines: dict[TimerKey, int] = {}
        """Deadlines of the join and sync timers, and of pending members; a `Member` has its own."""
        self._offers: list[Protocols] = []
        """Protocols of the generation's members when it began; empty once `_topics` is parsed."""
        self._topics: frozenset[str] | None = frozenset()
        self._topics_are_parsed = True

    # Timers.

    def schedule(self, key: TimerKey, deadline_ms: int) -> None:
        self.deadlines[key] = deadline_ms
        self.outbox.emit(Schedule(key, deadline_ms))

    def cancel(self, key: TimerKey) -> None:
        if self.deadlines.pop(key, None) is not None:
            self.outbox.emit(Cancel(key))

    def take_due(self, key: TimerKey, now_ms: int) -> bool:
        """Remove a timer's deadline; False if it was rescheduled or cancelled after it fired."""
        deadline_ms = self.deadlines.get(key)
        if deadline_ms is None or deadline_ms > now_ms:
            return False
        del self.deadlines[key]
        return True

    def start_session(self, member: Member, now_ms: int, timeout_ms: int | None = None) -> None:
        """Restart the session of `member`: it lasts its timeout (or `timeout_ms`) from now.

        A timer later than the session's end is rescheduled now, an earlier one when it fires.
        """
        if timeout_ms is None:
            timeout_ms = member.session_timeout_ms
        deadline_ms = member.session_deadline_ms = now_ms + timeout_ms
        timer_ms = member.session_timer_ms
        if timer_ms is None or deadline_ms < timer_ms:
            member.session_timer_ms = deadline_ms
            self.outbox.emit(Schedule(member.session_key, deadline_ms))

    def start_sessions(self, now_ms: int) -> None:
        moved: dict[TimerKey, int] = {}
        for member in self.roster:
            deadline_ms = member.session_deadline_ms = now_ms + member.session_timeout_ms
            timer_ms = member.session_timer_ms
            if timer_ms is None or deadline_ms < timer_ms:
                member.session_timer_ms = moved[member.session_key] = deadline_ms
        if moved:
            self.outbox.emit(ScheduleSessions(moved))

    def stop_session(self, member: Member) -> None:
        if member.session_timer_ms is not None:
            member.session_timer_ms = None
            self.outbox.emit(Cancel(member.session_key))

    # State changes.

    def new_member_id(self, prefix: str) -> str:
        """Create a unique id that begins with the client or instance id, shortened if necessary:
        the member id is stored, and sent to all kinds of clients.
        """
        return self._make_member_id(cut_text(prefix, MEMBER_ID_PREFIX_BYTES_MAX))

    def move_to(self, state: ClassicState, now: Now) -> None:
        assert self.state in LEGAL_PREVIOUS[state], f"{self.state} to {state}"
        self.previous_state, self.state = self.state, state
        self.state_timestamp_ms = now.wall_ms

    def note_subscriptions(self) -> Sequence[Protocols]:
        """Keep the protocols of all members of a new generation; return them in roster order."""
        self._offers = [member.protocols for member in self.roster]
        self._topics_are_parsed = not self._offers
        self._topics = frozenset()
        return self._offers

    def find_member(self, member_id: str, instance_id: str | None) -> Member | ErrorCode:
        """Return the member that sent a request, or the error."""
        found = self.roster.find(member_id, instance_id)
        if isinstance(found, Member):
            return found
        if found is ErrorCode.FENCED_INSTANCE_ID:
            assert instance_id is not None
            self.outbox.note(MemberFenced(member_id, instance_id))
        elif found is ErrorCode.UNKNOWN_MEMBER_ID:
            self.lost.hear(member_id)
            # The process was replaced: it is fenced, although its request has no instance id.
            if (instance := self.replaced.get(member_id)) is not None:
                self.outbox.note(MemberFenced(member_id, instance))
        return found

    def find_member_of(
        self, member_id: str, instance_id: str | None, generation: int
    ) -> Member | ErrorCode:
        if self.state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        found = self.find_member(member_id, instance_id)
        if isinstance(found, Member) and generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return found

    def request_rejoin(self, member: Member) -> None:
        """Record that `member` gets REBALANCE_IN_PROGRESS; publish MemberTold the first time."""
        if not member.rejoin_requested:
            member.rejoin_requested = True
            self.outbox.note(MemberTold(member.member_id))

    def answer_join(self, member: Member, result: JoinResult) -> None:
        """Answer the parked join of `member`, if there is one."""
        ticket = self.roster.unpark_join(member)
        if ticket is not None:
            self.outbox.reply(ticket, result)

    def answer_sync(self, member: Member, result: SyncResult) -> bool:
        """Answer the parked sync; False if there is none."""
        ticket, member.sync_ticket = member.sync_ticket, None
        if ticket is None:
            return False
        self.outbox.reply(ticket, result)
        return True

    def remove_member(
        self,
        member: Member,
        fate: RemovalReason,
        *,
        error: ErrorCode = ErrorCode.UNKNOWN_MEMBER_ID,
        text: str | None = None,
    ) -> None:
        """Remove `member` and its timer; its parked requests are answered with `error`.

        The caller begins or completes a rebalance if necessary.
        """
        if member.join_ticket is not None:
            self.answer_join(member, JoinResult(error))
        held = self.held.pop(member.member_id, None)
        if held is not None and held.ticket is not None:
            self.outbox.reply(held.ticket, JoinResult(error))
        if member.sync_ticket is not None:
            self.answer_sync(member, SyncResult(error))
        self.stop_session(member)
        self.forget_pending_sync(member)
        self.roster.remove(member)
        if fate in _SILENT:
            self.lost.add(member)
        self.outbox.note(MemberRemoved(member.ref, fate, text))

    def forget_pending_sync(self, member: Member) -> None:
        """Record that `member` has synced or was removed; after the last pending member, cancel the
        sync timer.
        """
        if member.member_id in self.pending_sync:
            del self.pending_sync[member.member_id]
            if not self.pending_sync:
                self.cancel(SYNC_TIMER)

    def forget_pending_id(self, member_id: str) -> None:
        """Forget a handed-out id that has been used or given back, or was dropped."""
        del self.roster.pending[member_id]
        self.unused_ids.discard(member_id)
        self.cancel(TimerKey(PENDING, member_id))

    # Reads.

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members of the generation subscribe to; None if unknown, to be
        treated as all topics.

        Parsed on demand, but from the subscriptions at the beginning of the generation: a
        subscription for the next generation does not change the result.
        """
        if not self._topics_are_parsed:
            name = self.protocol_name
            subscriptions = {metadata_for(name, offered) for offered in set(self._offers)}
            is_readable = self.protocol_type == CONSUMER
            self._topics = union_of_topics(subscriptions) if is_readable else None
            self._topics_are_parsed = True
            self._offers = []
        return self._topics
