"""The join phase, from PreparingRebalance to the answered joins: begin, collect, complete.

`begin` starts a rebalance. If a join caused it, the caller parks that join. Then the caller calls
`proceed`, which completes the join phase if all members have joined. Otherwise the phase ends when
the last one joins or time runs out; in an empty group, when the initial delay is over.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kohort.groups.classic import durable
from kohort.groups.classic.data import ClassicData, InitialDelay
from kohort.groups.classic.member import JOIN_TIMER, SYNC_TIMER, Member, Protocols, metadata_for
from kohort.groups.classic.states import ClassicState
from kohort.groups.classic.stored_cause import encode_cause
from kohort.groups.effects import Replies, Reply
from kohort.groups.events import (
    CauseAdded,
    InitialDelayExtended,
    JoinPhaseEnd,
    JoinPhaseEnded,
    JoinPhaseStalled,
    JoinReceived,
    MemberRef,
    RebalanceEnd,
    RebalanceEnded,
    RebalanceStarted,
    RemovalReason,
    Trigger,
    TriggerKind,
)
from kohort.groups.kinds import GroupKind
from kohort.groups.requests import JoinedMember, JoinResult, Now, SyncResult, Ticket
from kohort.protocol.errors import NO_ERROR, ErrorCode

_PREPARING_REBALANCE: Final = ClassicState.PREPARING_REBALANCE
"""A module constant, because in Python 3.11 each lookup of an enum member takes 0.1 us."""


def begin(group: ClassicData, trigger: Trigger, now: Now) -> None:
    """Move to PreparingRebalance. The caller must call `proceed` before the command ends.

    Allowed in Empty, Stable and CompletingRebalance. A pending assignment is abandoned.
    """
    for member in group.roster:
        member.rejoin_requested = False
    if trigger.kind in _SEES_TOPICS:
        trigger = _with_grown_topics(group, trigger, now)
    members = tuple([member.ref for member in group.roster])
    pending = len(group.offsets.pending_producers()) if group.offsets.has_pending else 0
    group.outbox.note(
        RebalanceStarted(
            trigger, group.state.value, group.generation, members, GroupKind.CLASSIC, pending
        )
    )
    group.begun = encode_cause(trigger, group.state.value, group.generation, now.wall_ms)
    if group.state is ClassicState.COMPLETING_REBALANCE:
        abandon_assignment(group, ErrorCode.REBALANCE_IN_PROGRESS, now)
    _park_held_joins(group)
    group.pending_sync.clear()
    group.cancel(SYNC_TIMER)
    if group.state is ClassicState.EMPTY:
        group.initial = InitialDelay(group.config.initial_rebalance_delay_ms, 0)
    group.move_to(ClassicState.PREPARING_REBALANCE, now)


_SEES_TOPICS: Final = frozenset(
    {TriggerKind.LEADER_REJOINED, TriggerKind.PROTOCOLS_CHANGED, TriggerKind.FORCED_BY_REASON}
)
"""Kinds of triggers that may be a member's reaction to new partitions of its topics."""


def _with_grown_topics(group: ClassicData, trigger: Trigger, now: Now) -> Trigger:
    """Return `trigger` with the group's topics that got more partitions since its last change of
    state: the member may have rejoined because of them.
    """
    if group.grown_since is None:
        return trigger
    grown = group.grown_since(group.state_timestamp_ms)
    # Subscriptions are parsed only if any topic of the broker has grown.
    topics = (group.subscribed_topics() or frozenset()) if grown else frozenset()
    moments = [at_ms for topic, at_ms in grown.items() if topic in topics]
    if not moments:
        return trigger
    ago_ms = max(now.wall_ms - max(moments), 0)
    return trigger._replace(grown_topics=tuple(sorted(topics & grown.keys())), grown_ms=ago_ms)


def proceed(group: ClassicData, now: Now) -> None:
    """Complete the join phase if no member is missing, else set its deadline."""
    timeout_ms = group.roster.rebalance_timeout_ms()
    if group.initial is not None:
        group.initial.remaining_ms = max(timeout_ms - group.initial.window_ms, 0)
        group.schedule(JOIN_TIMER, now.ms + group.initial.window_ms)
    elif not try_complete(group, now):
        group.schedule(JOIN_TIMER, now.ms + timeout_ms)


def cause(group: ClassicData, trigger: Trigger, now: Now) -> None:
    """Begin a rebalance because a member was removed, or complete the one in progress if it waited
    only for this member.
    """
    cause_all(group, [trigger], now)


def cause_all(group: ClassicData, triggers: Sequence[Trigger], now: Now) -> None:
    """Begin one rebalance for several triggers: the first is its cause, the others are additional
    causes.
    """
    is_running = group.state is ClassicState.PREPARING_REBALANCE
    if not is_running:
        begin(group, triggers[0], now)
    for trigger in triggers if is_running else triggers[1:]:
        group.outbox.note(CauseAdded(trigger))
    if is_running:
        try_complete(group, now)
    else:
        proceed(group, now)


def try_complete(group: ClassicData, now: Now) -> bool:
    """End the join phase if all members have joined, and no pending member id (KIP-394) is left.

    Do nothing during the initial delay, which is not shortened if members or ids are removed.
    """
    if group.state is not _PREPARING_REBALANCE or group.initial is not None:
        return False
    if not group.roster.all_joined:
        return False
    complete(group, JoinPhaseEnd.ALL_JOINED, now)
    return True


def on_join_deadline(group: ClassicData, now: Now) -> None:
    """Handle the end of the join phase, or of a window of the initial delay."""
    if group.state is not ClassicState.PREPARING_REBALANCE:
        return
    initial = group.initial
    if initial is None:
        complete(group, JoinPhaseEnd.TIMEOUT, now)
    elif initial.member_added and initial.remaining_ms:
        initial.member_added = False
        expired_ms = initial.window_ms
        initial.window_ms = min(group.config.initial_rebalance_delay_ms, initial.remaining_ms)
        initial.remaining_ms = max(initial.remaining_ms - expired_ms, 0)
        deadline_ms = now.ms + initial.window_ms
        group.schedule(JOIN_TIMER, deadline_ms)
        group.outbox.note(InitialDelayExtended(deadline_ms))
    else:
        complete(group, JoinPhaseEnd.INITIAL_DELAY, now)


def complete(group: ClassicData, end: JoinPhaseEnd, now: Now) -> None:
    """Begin the next generation with all static members, and the other members that joined."""
    group.cancel(JOIN_TIMER)
    group.initial = None
    roster = group.roster
    if roster.parked_joins < len(roster):
        absent = [m for m in roster if m.join_ticket is None and not m.is_static]
        for member in absent:
            group.remove_member(member, RemovalReason.REBALANCE_TIMEOUT)
    if not len(roster):
        _become_empty(group, now)
    elif not roster.parked_joins:
        # All remaining members are static and absent. Their sessions will expire, or they return.
        group.outbox.note(JoinPhaseStalled(tuple(member.member_id for member in roster)))
        group.schedule(JOIN_TIMER, now.ms + roster.rebalance_timeout_ms())
    else:
        _begin_generation(group, end, now)


def abandon_assignment(group: ClassicData, error: ErrorCode, now: Now) -> None:
    """Abandon the pending assignment, and answer the members that wait for it."""
    for member in group.roster:
        group.roster.assign(member, b"")
        if group.answer_sync(member, SyncResult(error)):
            group.start_session(member, now.ms)
            if error is ErrorCode.REBALANCE_IN_PROGRESS:
                group.request_rejoin(member)


def current_generation(
    group: ClassicData, member: Member, *, leader: str | None = None, with_members: bool = False
) -> JoinResult:
    """Return the answer to a join that begins no rebalance.

    Args:
        leader: the leader's member id in the answer; None: the actual leader's.
    """
    return JoinResult(
        member_id=member.member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=(group.roster.leader_id or "") if leader is None else leader,
        members=joined_members(group) if with_members else [],
    )


def joined_members(group: ClassicData) -> list[JoinedMember]:
    return [
        JoinedMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            metadata=member.metadata(group.protocol_name),
        )
        for member in group.roster
    ]


def park(group: ClassicData, member: Member, ticket: Ticket) -> None:
    """Park the join of `member` until the next generation. If the member has an earlier parked
    join, answer that one with REBALANCE_IN_PROGRESS.
    """
    if member.join_ticket is not None:
        group.answer_join(member, JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    group.roster.park_join(member, ticket)
    group.outbox.note(
        JoinReceived(
            member.ref,
            member.reason,
            member.protocols,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
        )
    )


def _park_held_joins(group: ClassicData) -> None:
    """Park the joins in `held`, so that returned static members take part in the rebalance."""
    held, group.held = group.held, {}
    for member_id, join in held.items():
        member = group.roster.get(member_id)
        assert member is not None
        assert join.ticket is not None, "no step is taken while an append is in progress"
        park(group, member, join.ticket)


def _become_empty(group: ClassicData, now: Now) -> None:
    group.generation += 1
    group.protocol_name = None
    group.topics_hash = None
    group.note_subscriptions()
    group.move_to(ClassicState.EMPTY, now)
    durable.store_emptied(group)
    group.outbox.note(RebalanceEnded(RebalanceEnd.EMPTY, group.generation, {}))


def _begin_generation(group: ClassicData, end: JoinPhaseEnd, now: Now) -> None:
    roster = group.roster
    if roster.leader is None or roster.leader.join_ticket is None:
        roster.leader_id = next(m.member_id for m in roster if m.join_ticket is not None)
    group.generation += 1
    group.protocol_name = roster.choose_protocol()
    group.topics_hash = None
    offers = group.note_subscriptions()
    refs = tuple([member.ref for member in roster])
    are_all_here = roster.parked_joins == len(roster)
    group.move_to(ClassicState.COMPLETING_REBALANCE, now)
    group.outbox.note(
        JoinPhaseEnded(
            end=end,
            generation=group.generation,
            protocol_name=group.protocol_name,
            leader=roster.leader_id,
            members=refs,
            absent=()
            if are_all_here
            else tuple([m.member_id for m in roster if not m.join_ticket]),
            pending=tuple(roster.pending),
            protocol_type=group.protocol_type,
        )
    )
    tickets: dict[str, Ticket] = {}
    for member in roster:
        if member.join_ticket is not None:
            tickets[member.member_id] = member.join_ticket
        member.is_new = False
    roster.unpark_all_joins()
    group.start_sessions(now.ms)
    group.pending_sync = dict.fromkeys([ref.member_id for ref in refs])
    answers = _join_answers(group, tickets, zip(refs, offers, strict=True))
    group.outbox.emit(Replies(answers, len(tickets)))
    group.schedule(SYNC_TIMER, now.ms + roster.rebalance_timeout_ms())


def _join_answers(
    group: ClassicData,
    tickets: dict[str, Ticket],
    members: Iterable[tuple[MemberRef, Protocols]],
) -> Iterator[Reply]:
    """Return the answers to the joins of a new generation; the leader's is the first, because the
    other members wait for its assignment. Later changes of the group do not affect them.
    """
    leader_id = group.roster.leader_id
    assert leader_id is not None
    name = group.protocol_name
    generation, protocol_type = group.generation, group.protocol_type

    def answers() -> Iterator[Reply]:
        leader = tickets.pop(leader_id, None)
        if leader is not None:
            joined = [
                JoinedMember(
                    member_id=ref.member_id,
                    group_instance_id=ref.instance_id,
                    metadata=metadata_for(name, offered),
                )
                for ref, offered in members
            ]
            said = (generation, protocol_type, name, leader_id, joined)
            yield Reply(leader, JoinResult(NO_ERROR, leader_id, *said))
        for member_id, ticket in tickets.items():
            result = JoinResult(NO_ERROR, member_id, generation, protocol_type, name, leader_id)
            yield Reply(ticket, result)

    return answers()
