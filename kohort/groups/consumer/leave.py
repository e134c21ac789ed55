"""Members that leave by their heartbeat, and members that LeaveGroup removes, of either protocol:
administrators remove members of consumer groups with it.
"""

from collections.abc import Sequence

from kohort.groups.classic.leave import ADMIN_REASON, ENTRIES_PER_STEP
from kohort.groups.consumer import epochs
from kohort.groups.consumer.draft import Draft
from kohort.groups.consumer.member import LEFT_FOR_RESTART, NOTHING, Member, MemberState
from kohort.groups.consumer.requests import HeartbeatRequest, HeartbeatResult
from kohort.groups.consumer.validation import fenced, unknown
from kohort.groups.events import RemovalReason, Trigger, TriggerKind
from kohort.groups.requests import LeaveEntry, LeaveResult
from kohort.groups.steps import Steps
from kohort.protocol.errors import NO_ERROR, ErrorCode


def leave(draft: Draft, request: HeartbeatRequest) -> HeartbeatResult:
    """Process a heartbeat with a negative epoch: the member leaves, a static one perhaps for a
    restart. Its epoch is not checked.

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
        epochs.note_removals(draft, [cause])
    return HeartbeatResult(member_id=member_id, epoch=request.epoch)


def leave_steps(draft: Draft, entries: Sequence[LeaveEntry]) -> Steps[LeaveResult]:
    """Process a LeaveGroup: remove the given members, with one bump for all."""
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
        epochs.note_removals(draft, [causes[0]._replace(removed=ids)])
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
