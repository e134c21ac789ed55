"""JoinGroup: who may join, under which id, and whether the group has to rebalance.

Checks are made in this order, and the first to fail determines the error: group id and session
timeout (before the group is looked up, `check_request`), size, Dead, protocols, identity. So a new
client with the wrong assignor gets INCONSISTENT_GROUP_PROTOCOL and no member id.
"""

from dataclasses import replace
from typing import Final

from kohort.groups.classic import rebalance, replacement
from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.decisions import Decision, Joiner, decide
from kohort.groups.classic.member import (
    PENDING,
    Member,
    PendingMember,
    metadata_for,
    size_of,
    size_of_ids,
)
from kohort.groups.classic.protocols import compare_topics
from kohort.groups.classic.states import ClassicState
from kohort.groups.config import GroupConfig
from kohort.groups.effects import TimerKey
from kohort.groups.events import (
    CauseAdded,
    MemberRef,
    MemberRefused,
    RebalanceAvoided,
    RemovalReason,
    Trigger,
    TriggerKind,
    UnusedIdDropped,
)
from kohort.groups.reasons import ReasonSource, StatedReason
from kohort.groups.requests import CONSUMER, JoinRequest, JoinResult, Now, Ticket
from kohort.protocol.errors import NO_ERROR, ErrorCode
from kohort.protocol.join_reason import JoinReason

# Module constants, because in Python 3.11 each lookup of an enum member takes 0.1 us.
_EMPTY: Final = ClassicState.EMPTY
_PREPARING_REBALANCE: Final = ClassicState.PREPARING_REBALANCE
_DEAD: Final = ClassicState.DEAD


def check_request(group_id: str, request: JoinRequest, config: GroupConfig) -> ErrorCode:
    """Check a join as far as possible without its group; NONE if nothing is wrong."""
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    timeout_ms = request.session_timeout_ms
    if not config.min_session_timeout_ms <= timeout_ms <= config.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return NO_ERROR


def join(group: ClassicData, request: JoinRequest, ticket: Ticket, now: Now) -> None:
    """Answer, or park `ticket` until the join phase ends."""
    limit = _limit_reached(group, request)
    if limit is not None:
        _refuse(group, request, limit, ticket, now)
    elif group.state is _DEAD:
        _fail(group, request, ticket, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    elif not _is_compatible(group, request):
        _note_incompatible(group, request, now)
        _fail(group, request, ticket, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif request.member_id:
        _join_with_id(group, request, ticket, now)
    elif (holder := group.roster.holder_of(request.instance_id)) is not None:
        replacement.join(group, holder, request, ticket, now)
    elif request.instance_id is None and request.requires_known_id:
        _hand_out_id(group, request, ticket, now)
    else:
        prefix = request.client_id if request.instance_id is None else request.instance_id
        _add_member(group, group.new_member_id(prefix), request, ticket, now)


def _fail(group: ClassicData, request: JoinRequest, ticket: Ticket, error: ErrorCode) -> None:
    group.outbox.reply(ticket, JoinResult(error, request.member_id))


def _note_incompatible(group: ClassicData, request: JoinRequest, now: Now) -> None:
    detail = ""
    if request.protocol_type != group.protocol_type:
        detail = f"its protocol type is {request.protocol_type}, the group's {group.protocol_type}"
    trigger = Trigger(
        TriggerKind.PROTOCOL_REFUSED,
        _ref_of(request),
        old_protocols=group.roster.common_protocols(),
        new_protocols=tuple(name for name, _ in request.protocols),
        error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        detail=detail,
    )
    group.refusals.note(group.outbox, trigger, now.ms)


def _ref_of(request: JoinRequest) -> MemberRef:
    return MemberRef(request.member_id, request.instance_id, request.client_id, request.client_host)


def _limit_reached(group: ClassicData, request: JoinRequest) -> str | None:
    """Return which limit the group would exceed, None if none. An existing member does not make the
    group larger, and neither does a member that replaces it.

    While joins are collected, only members that have rejoined count: if the limit was lowered, the
    last ones to rejoin are removed.
    """
    roster, size_max = group.roster, group.config.max_size
    member = roster.get(request.member_id) or roster.holder_of(request.instance_id)
    more_bytes = 0
    if member is None:
        more_bytes = size_of(request.protocols)
        more_bytes += size_of_ids(request.client_id, request.instance_id)
    elif member.protocols != request.protocols:
        more_bytes = size_of(request.protocols) - size_of(member.protocols)
    if roster.metadata_bytes + more_bytes > group.config.metadata_bytes_max:
        return "the subscriptions of all members are larger than one record may be"
    if not roster.memory.has_room(more_bytes):
        return "the members of all groups take as much memory as the broker allows"
    state = group.state
    if state is _EMPTY or state is _DEAD:
        return None
    if state is _PREPARING_REBALANCE:
        is_parked = member is not None and member.join_ticket is not None
        has_room = is_parked or roster.parked_joins < size_max
    else:
        has_room = member is not None or len(roster) < size_max
    return None if has_room else f"the group has {size_max} members, its group.max.size"


def _refuse(group: ClassicData, request: JoinRequest, limit: str, ticket: Ticket, now: Now) -> None:
    group.outbox.note(MemberRefused(request.member_id, request.client_id, request.client_host))
    if request.member_id in group.roster.pending:
        group.forget_pending_id(request.member_id)
        group.outbox.note(UnusedIdDropped(request.member_id))
        rebalance.try_complete(group, now)
    member = group.roster.get(request.member_id) or group.roster.holder_of(request.instance_id)
    if member is not None:
        trigger = Trigger(
            TriggerKind.SIZE_REFUSED,
            member.ref,
            was_leader=member.member_id == group.roster.leader_id,
            reason=request.reason,
            removed=(member.member_id,),
        )
        group.remove_member(member, RemovalReason.SIZE_REFUSED)
        rebalance.cause(group, trigger, now)
    else:
        trigger = Trigger(
            TriggerKind.MEMBER_REFUSED,
            _ref_of(request),
            error=ErrorCode.GROUP_MAX_SIZE_REACHED,
            detail=limit,
        )
        group.refusals.note(group.outbox, trigger, now.ms)
    group.outbox.reply(ticket, JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED))


def _is_compatible(group: ClassicData, request: JoinRequest) -> bool:
    """Whether the join has the group's protocol type, and a protocol that all members offer; if the
    sender is a member, its previous join counts as well. An Empty group accepts any protocol.
    """
    if group.state is _EMPTY:
        return bool(request.protocol_type and request.protocols)
    if request.protocol_type != group.protocol_type:
        return False
    return group.roster.all_offer_one_of(request.protocols)


def _hand_out_id(group: ClassicData, request: JoinRequest, ticket: Ticket, now: Now) -> None:
    """Assign a member id (KIP-394); a client that never returns does not become a member."""
    roster = group.roster
    if len(roster.pending) >= group.config.pending_ids_max:
        oldest = next(iter(roster.pending))
        group.forget_pending_id(oldest)
        group.outbox.note(UnusedIdDropped(oldest))
    member_id = group.new_member_id(request.client_id)
    deadline_ms = now.ms + request.session_timeout_ms
    roster.pending[member_id] = PendingMember(member_id, request.reason, deadline_ms)
    group.unused_ids.add(group.group_id, member_id)
    group.schedule(TimerKey(PENDING, member_id), deadline_ms)
    group.outbox.reply(ticket, JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id))


def drop_id(group: ClassicData, member_id: str, now: Now) -> None:
    """Forget a handed-out id because the broker has too many; its client has to start over."""
    if member_id in group.roster.pending:
        group.forget_pending_id(member_id)
        group.outbox.note(UnusedIdDropped(member_id))
        rebalance.try_complete(group, now)


def _join_with_id(group: ClassicData, request: JoinRequest, ticket: Ticket, now: Now) -> None:
    pending = group.roster.pending.get(request.member_id)
    if pending is not None:
        if request.instance_id is not None:
            _fail(group, request, ticket, ErrorCode.UNKNOWN_MEMBER_ID)
            return
        group.forget_pending_id(request.member_id)
        known_reason = _join_reasons(pending.reason, request.reason)
        if known_reason is not request.reason:
            request = replace(request, reason=known_reason)
        _add_member(group, request.member_id, request, ticket, now)
        return
    found = group.find_member(request.member_id, request.instance_id)
    if isinstance(found, ErrorCode):
        _fail(group, request, ticket, found)
        return
    found.set_software(request.client_software)
    if group.state is _PREPARING_REBALANCE:
        _update(group, found, request)
        rebalance.park(group, found, ticket)
        rebalance.try_complete(group, now)
    else:
        _rejoin(group, found, request, ticket, now)


def _join_reasons(first: StatedReason, second: StatedReason) -> StatedReason:
    """Return the reason of a member's two joins: the second's, unless only the first is tagged."""
    if second.source is ReasonSource.TAG or first.source is not ReasonSource.TAG:
        return second
    return first._replace(text=second.text or first.text)


def _add_member(
    group: ClassicData, member_id: str, request: JoinRequest, ticket: Ticket, now: Now
) -> None:
    member = Member(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=max(request.rebalance_timeout_ms, 0),
        protocols=request.protocols,
        is_new=True,
        reason=request.reason,
        client_software=request.client_software,
    )
    is_static = member.is_static
    same_process, away_ms = group.lost.take(request, now.ms)
    trigger = Trigger(
        TriggerKind.STATIC_ADDED if is_static else TriggerKind.MEMBER_ADDED,
        member.ref,
        reason=request.reason,
        new_protocols=member.protocol_names,
        same_process=same_process,
        away_ms=away_ms,
    )
    is_running = group.state is _PREPARING_REBALANCE
    if is_running:
        group.outbox.note(CauseAdded(trigger))
        if group.initial is not None:
            group.initial.member_added = True
    else:
        rebalance.begin(group, trigger, now)
    if not len(group.roster):
        group.protocol_type = request.protocol_type
    group.roster.add(member)
    rebalance.park(group, member, ticket)
    group.start_session(member, now.ms, group.config.new_member_join_timeout_ms)
    if is_running:
        rebalance.try_complete(group, now)
    else:
        rebalance.proceed(group, now)


def _rejoin(
    group: ClassicData, member: Member, request: JoinRequest, ticket: Ticket, now: Now
) -> None:
    leads = group.roster.leader_id == member.member_id
    differs = member.protocols != request.protocols
    decision = decide(
        group.state, Joiner.KNOWN, request.reason.decisive, differs=differs, leads=leads
    )
    old, new = member.compare_names(request.protocols) if differs else ((), ())
    trigger = Trigger(
        _KIND_BY_ROW.get(decision.row, TriggerKind.LEADER_REJOINED),
        member.ref,
        was_leader=leads,
        reason=request.reason,
        row=decision.row,
        old_protocols=old,
        new_protocols=new,
    )
    if decision.row == 13 and replacement.have_topics_changed(group):
        trigger = trigger._replace(detail=replacement.PARTITION_COUNTS_CHANGED)
        decision = Decision(13, rebalance=True)
    member.reason = request.reason
    if decision.rebalance:
        trigger = _with_subscription(group, trigger, member, request)
        rebalance.begin(group, trigger, now)
        _update(group, member, request)
        rebalance.park(group, member, ticket)
        rebalance.proceed(group, now)
        return
    if decision.row in {12, 13} or (decision.row == 16 and request.reason.reason):
        group.outbox.note(RebalanceAvoided(trigger))
    if decision.row == 13:
        _welcome_back(group, member, request, ticket, now)
    else:
        with_members = leads and decision.row == 8
        group.outbox.reply(
            ticket, rebalance.current_generation(group, member, with_members=with_members)
        )


def _with_subscription(
    group: ClassicData, trigger: Trigger, member: Member, request: JoinRequest
) -> Trigger:
    """Return `trigger` with the topics that the rejoining member has added to its subscription, and
    removed from it.
    """
    if group.protocol_type != CONSUMER:
        return trigger
    name = group.protocol_name
    topics = compare_topics(member.metadata(name), metadata_for(name, request.protocols))
    if topics is None:
        return trigger
    subscribed, unsubscribed = map(tuple, map(sorted, topics))
    is_same = not subscribed and not unsubscribed
    reason = request.reason
    # Texts of client libraries have a known reason; any other is the argument of enforceRebalance.
    is_enforced = is_same and reason.text and not reason.reason
    if is_enforced:
        reason = reason._replace(reason=JoinReason.ENFORCED, source=ReasonSource.INFERRED)
    return trigger._replace(
        reason=reason,
        same_subscription=is_same,
        subscribed=subscribed,
        unsubscribed=unsubscribed,
    )


_KIND_BY_ROW = {
    7: TriggerKind.PROTOCOLS_CHANGED,
    9: TriggerKind.PROTOCOLS_CHANGED,
    10: TriggerKind.FORCED_BY_REASON,
    11: TriggerKind.FORCED_BY_REASON,
    12: TriggerKind.FORCED_BY_REASON,
    16: TriggerKind.FOLLOWER_REJOINED,
}
"""The trigger of a known member's rejoin, by row of the decision table."""


def _welcome_back(
    group: ClassicData, member: Member, request: JoinRequest, ticket: Ticket, now: Now
) -> None:
    """Answer a leader that joins again after a restart: it keeps its assignment (decision row 13).

    If the response's version has no flag for skipping the assignment, it names no leader, because
    a client that is named as the leader computes a new assignment.
    """
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = max(request.rebalance_timeout_ms, 0)
    group.start_session(member, now.ms)
    if request.can_skip_assignment:
        result = rebalance.current_generation(group, member, with_members=True)
        group.outbox.reply(ticket, replace(result, skip_assignment=True))
    else:
        group.outbox.reply(ticket, rebalance.current_generation(group, member, leader=""))


def _update(group: ClassicData, member: Member, request: JoinRequest) -> None:
    """Copy protocols, timeouts and reason from a join that takes part in a rebalance."""
    member.connection = None  # The join may have come on another one.
    member.session_timeout_ms = request.session_timeout_ms
    member.rebalance_timeout_ms = max(request.rebalance_timeout_ms, 0)
    member.reason = request.reason
    if member.protocols != request.protocols:
        group.roster.set_protocols(member, request.protocols)
