"""Removes members of either protocol: those that leave by a heartbeat, those that a LeaveGroup
names, and those whose timers expire, because they are silent or keep revoked partitions.

Each removal bumps the epoch with a cause of its own; a LeaveGroup counts as one removal. The end of
the assignment interval is handled here as well.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kohort.groups.classic.leave import ADMIN_REASON, ENTRIES_PER_STEP
from kohort.groups.consumer import epochs, sessions
from kohort.groups.consumer.data import ConsumerData
from kohort.groups.consumer.draft import Draft
from kohort.groups.consumer.member import LEFT_FOR_RESTART, NOTHING, Member, MemberState
from kohort.groups.consumer.requests import HeartbeatRequest
from kohort.groups.consumer.target import SMALL, is_due, target_steps
from kohort.groups.consumer.validation import fenced, unknown
from kohort.groups.consumer.write import ASSIGN_TIMER
from kohort.groups.effects import TimerKey
from kohort.groups.events import RemovalReason, Trigger, TriggerKind
from kohort.groups.member_sessions import SESSION, HeartbeatResult, has_expired, take_due
from kohort.groups.requests import LeaveEntry, LeaveResult, Now, is_open
from kohort.groups.steps import Steps, at_once
from kohort.protocol.errors import NO_ERROR, ErrorCode


def leave(draft: Draft, request: HeartbeatRequest) -> Steps[HeartbeatResult]:
    """Process a heartbeat with epoch -1: the member leaves; or -2: a static member leaves for a
    restart. The member's own epoch does not matter.

    Raises:
        Rejected: it is unknown, or another process has its instance id.
    """
    data = draft.data
    member_id = request.member_id
    instance_id = request.instance_id
    holder_id = member_id if instance_id is None else draft.holder_of(instance_id)
    member = None if holder_id is None else draft.member(holder_id)
    if member is None:
        raise unknown(data, request)
    if member.member_id != member_id:
        raise fenced(request, member.member_id)
    if request.epoch == LEFT_FOR_RESTART:
        draft.put(
            member._replace(
                epoch=LEFT_FOR_RESTART,
                previous_epoch=member.epoch,
                state=MemberState.STABLE,
                assigned=dict.fromkeys(member.assigned, 0),
                pending=NOTHING,
            )
        )
    else:
        draft.dismiss(member, RemovalReason.LEFT)
        cause = Trigger(
            TriggerKind.MEMBER_LEFT,
            member.ref,
            reason=request.reason,
            removed=(member_id,),
            detail=request.reason.text or "",
        )
        yield from epochs.note_removals(draft, [cause])
    return HeartbeatResult(member_id=member_id, epoch=request.epoch)


def leave_steps(draft: Draft, entries: Sequence[LeaveEntry]) -> Steps[LeaveResult]:
    """Process a LeaveGroup: remove the given members, and bump the epoch once for all of them."""
    errors: list[ErrorCode] = []
    removed: list[Member] = []
    causes: list[Trigger] = []
    for count, entry in enumerate(entries, start=1):
        if count % ENTRIES_PER_STEP == 0:
            yield
        member = _find(draft, entry)
        if isinstance(member, ErrorCode):
            errors.append(member)
            continue
        by_admin = (
            not entry.member_id
            or member.classic is None
            or ADMIN_REASON in (entry.reason or "").lower()
        )
        kind = TriggerKind.REMOVED_BY_ADMIN if by_admin else TriggerKind.MEMBER_LEFT
        fate = RemovalReason.REMOVED_BY_ADMIN if by_admin else RemovalReason.LEFT
        causes.append(Trigger(kind, member.ref, detail=entry.reason or ""))
        removed.append(member)
        draft.dismiss(member, fate, entry.reason)
        errors.append(NO_ERROR)
    if removed:
        ids = tuple([member.member_id for member in removed])
        yield from epochs.note_removals(draft, [causes[0]._replace(removed=ids)])
    return LeaveResult(entries=tuple(errors))


def _find(draft: Draft, entry: LeaveEntry) -> Member | ErrorCode:
    member_id = entry.member_id
    if entry.instance_id is not None:
        holder_id = draft.holder_of(entry.instance_id)
        if holder_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id and member_id != holder_id:
            return ErrorCode.FENCED_INSTANCE_ID
        member_id = holder_id
    return draft.member(member_id) or ErrorCode.UNKNOWN_MEMBER_ID


def on_deadlines(data: ConsumerData, keys: Iterable[TimerKey], now: Now) -> Draft:
    """Process timers that have expired together; return the changes."""
    draft = Draft(data, now.wall_ms)
    causes: list[Trigger] = []
    is_interval_over = False
    for key in keys:
        if key.kind == SESSION:
            is_due_now = has_expired(data.sessions, data.outbox, key.member_id, now.ms)
        else:
            is_due_now = take_due(data.deadlines, key, now.ms)
            is_interval_over |= is_due_now and key == ASSIGN_TIMER
        member = draft.member(key.member_id)  # None if its other timer expired, too.
        if member is not None and is_due_now:
            causes.append(_remove(draft, member, key.kind))
    if causes:
        at_once(epochs.note_removals(draft, causes))
    if is_interval_over and is_due(draft, now) and _is_small(draft):
        # The target of a large group is computed by the next heartbeat, which may take many steps.
        at_once(target_steps(draft, now))
    return draft


def _remove(draft: Draft, member: Member, kind: str) -> Trigger:
    cause = _session_expired(draft.data, member) if kind == SESSION else _overdue(member, kind)
    draft.dismiss(member, _FATES[cause.kind])
    return cause


def _session_expired(data: ConsumerData, member: Member) -> Trigger:
    detail, was_connected = "", is_open(data.sessions[member.member_id].connection)
    if member.epoch == LEFT_FOR_RESTART:
        detail, was_connected = "left for a restart and did not return", None
    if member.classic is None:
        sessions.note_lost(data, member)
    return Trigger(
        TriggerKind.SESSION_EXPIRED,
        member.ref,
        removed=(member.member_id,),
        timeout_ms=sessions.timeout_of(data, member),
        detail=detail,
        was_connected=was_connected,
    )


def _overdue(member: Member, kind: str) -> Trigger:
    return Trigger(
        _CAUSES[kind],
        member.ref,
        removed=(member.member_id,),
        timeout_ms=member.rebalance_timeout_ms,
    )


_CAUSES: Final = {
    sessions.REVOCATION: TriggerKind.REBALANCE_EXPIRED,
    sessions.JOIN: TriggerKind.JOIN_EXPIRED,
    sessions.SYNC: TriggerKind.SYNC_EXPIRED,
}
_FATES: Final = {
    TriggerKind.SESSION_EXPIRED: RemovalReason.SESSION_EXPIRED,
    TriggerKind.REBALANCE_EXPIRED: RemovalReason.REBALANCE_TIMEOUT,
    TriggerKind.JOIN_EXPIRED: RemovalReason.REBALANCE_TIMEOUT,
    TriggerKind.SYNC_EXPIRED: RemovalReason.SYNC_EXPIRED,
}


def _is_small(draft: Draft) -> bool:
    data = draft.data
    topics = len(data.subscribers) + sum(len(regex.topics) for regex in data.regexes.values())
    return draft.member_count + len(data.owners) + topics <= SMALL
