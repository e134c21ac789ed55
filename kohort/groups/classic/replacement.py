"""Static membership (KIP-345): a process returns under the instance id of a member.

The process gets a new member id, and replaces the old member. In a Stable group that would still
choose the same assignor, the new member also gets the old assignment, and the other members are not
disturbed; the new id is made durable before the response. In any other state the new member takes
part in a rebalance. In both cases the old process is fenced.
"""

from dataclasses import replace
from typing import Final

from kohort.groups.classic import durable, rebalance
from kohort.groups.classic.data import ClassicData, HeldJoin
from kohort.groups.classic.decisions import Decision, Joiner, decide
from kohort.groups.classic.member import Member
from kohort.groups.classic.protocols import hash_partition_counts, parse_topics
from kohort.groups.classic.states import ClassicState
from kohort.groups.events import CauseAdded, MemberReplaced, RebalanceAvoided, Trigger, TriggerKind
from kohort.groups.requests import JoinRequest, JoinResult, Now, SyncResult, Ticket
from kohort.protocol.errors import ErrorCode

REPLACED_MAX: Final = 100

PARTITION_COUNTS_CHANGED = "partition counts changed while the leader was away"
TOPICS_CHANGED = "other topics than before"


def join(group: ClassicData, old: Member, request: JoinRequest, ticket: Ticket, now: Now) -> None:
    """Process a join without a member id but with the instance id of `old`."""
    assert old.instance_id is not None
    led = group.roster.leader_id == old.member_id
    new = Member(
        member_id=group.new_member_id(old.instance_id),
        instance_id=old.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=max(request.rebalance_timeout_ms, 0),
        protocols=request.protocols,
        reason=request.reason,
        client_software=request.client_software,
    )
    old_names, new_names = old.compare_names(new.protocols)
    trigger = Trigger(
        TriggerKind.STATIC_REPLACED,
        new.ref,
        was_leader=led,
        reason=request.reason,
        old_protocols=old_names,
        new_protocols=new_names,
        silent_ms=_silent_ms(old, now),
    )
    if group.state is ClassicState.PREPARING_REBALANCE:
        group.outbox.note(CauseAdded(trigger))
        _take_over(group, old, new, now)
        rebalance.park(group, new, ticket)
        rebalance.try_complete(group, now)
        return
    decision, detail = _decide(group, old, new)
    trigger = trigger._replace(row=decision.row, detail=detail)
    if decision.rebalance:
        _fence_held(group, old)
        _take_over(group, old, new, now)
        rebalance.begin(group, trigger, now)
        rebalance.park(group, new, ticket)
        rebalance.proceed(group, now)
    else:
        group.outbox.note(RebalanceAvoided(trigger))
        can_skip = request.can_skip_assignment
        _replace_quietly(group, old, new, can_skip_assignment=can_skip, ticket=ticket, now=now)


def _silent_ms(old: Member, now: Now) -> int | None:
    """Return the time since the last heartbeat of the old process, or since its join. None while it
    waits for a response, or if it has never completed a join.
    """
    if old.is_parked or old.is_new:
        return None
    return max(now.ms - (old.session_deadline_ms - old.session_timeout_ms), 0)


def have_topics_changed(group: ClassicData) -> bool:
    """Whether partition counts have changed since the assignment was made; False if unknown.

    A leader that returns is told to skip the assignment, and so would not notice changes that were
    made while it was away.
    """
    if not group.config.check_partition_counts or group.topics_hash is None:
        return False
    current = hash_partition_counts(group.subscribed_topics(), group.partition_count)
    return current is not None and current != group.topics_hash


def _decide(group: ClassicData, old: Member, new: Member) -> tuple[Decision, str]:
    """Return the decision, and a detail if changed topics override row 15 of `decisions`."""
    leads = group.roster.leader_id == old.member_id
    differs = group.state is ClassicState.STABLE and _would_change_protocol(group, old, new)
    decision = decide(
        group.state, Joiner.REPLACEMENT, new.reason.decisive, differs=differs, leads=leads
    )
    if decision.row == 15:
        if leads and have_topics_changed(group):
            return Decision(15, rebalance=True), PARTITION_COUNTS_CHANGED
        if group.config.check_replaced_topics and _wants_other_topics(group, old, new):
            return Decision(15, rebalance=True), TOPICS_CHANGED
    return decision, ""


def _would_change_protocol(group: ClassicData, old: Member, new: Member) -> bool:
    if old.protocol_names == new.protocol_names:
        return False
    return group.roster.choose_protocol_with(new, old) != group.protocol_name


def _wants_other_topics(group: ClassicData, old: Member, new: Member) -> bool:
    before = parse_topics(old.metadata(group.protocol_name))
    after = parse_topics(new.metadata(group.protocol_name))
    return before is not None and after is not None and before != after


def _fence_held(group: ClassicData, old: Member) -> HeldJoin | None:
    """Reject the join of `old` with FENCED_INSTANCE_ID if it is held: another process joined with
    the same instance id before the new member id of `old` was appended.
    """
    superseded = group.held.pop(old.member_id, None)
    if superseded is not None:
        assert superseded.ticket is not None
        group.outbox.reply(
            superseded.ticket, JoinResult(ErrorCode.FENCED_INSTANCE_ID, old.member_id)
        )
    return superseded


def _take_over(group: ClassicData, old: Member, new: Member, now: Now) -> None:
    """Replace `old` by `new`; requests of the old process get FENCED_INSTANCE_ID."""
    fenced = ErrorCode.FENCED_INSTANCE_ID
    group.answer_join(old, JoinResult(fenced, old.member_id))
    group.answer_sync(old, SyncResult(fenced))
    durable.swap(group, old, new)
    assert old.instance_id is not None
    group.replaced[old.member_id] = old.instance_id
    if len(group.replaced) > REPLACED_MAX:
        del group.replaced[next(iter(group.replaced))]
    group.start_session(new, now.ms)
    group.outbox.note(MemberReplaced(old.member_id, new.ref))


def _replace_quietly(
    group: ClassicData,
    old: Member,
    new: Member,
    *,
    can_skip_assignment: bool,
    ticket: Ticket,
    now: Now,
) -> None:
    leader_before = group.roster.leader_id
    superseded = _fence_held(group, old)
    is_first = not group.held and superseded is None
    _take_over(group, old, new, now)
    leads = group.roster.leader_id == new.member_id
    result = rebalance.current_generation(group, new)
    if can_skip_assignment:
        if leads:
            result = replace(result, members=rebalance.joined_members(group), skip_assignment=True)
    else:
        # Name a returning leader's old id as the leader, so that it computes no assignment.
        result = replace(result, leader=leader_before or "")
    previous = old if superseded is None else superseded.previous
    group.held[new.member_id] = HeldJoin(previous, ticket, result)
    if is_first:
        group.outbox.stage(durable.ReplacementWrite(group))
