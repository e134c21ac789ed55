"""LeaveGroup: members that leave, and members that an administrator removes.

An administrator may remove thousands of members with one request, so it is executed in steps. No
other command may change the group between them: the rebalance begins with the last step.
"""

from collections.abc import Sequence
from typing import Final

from kohort.groups.classic import rebalance
from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.member import Member
from kohort.groups.classic.states import ClassicState
from kohort.groups.events import RemovalReason, Trigger, TriggerKind, UnusedIdDropped
from kohort.groups.requests import UNFETCHED_LEAST_MS, LeaveEntry, LeaveResult, Now, Ticket
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode

ADMIN_REASON = "removed by an admin"
"""Part of the reason sent by Kafka's admin clients, which remove dynamic members by member id."""


ENTRIES_PER_STEP: Final = 100
"""Members that are removed in one step: about two milliseconds, including events for the history
and the metrics."""


def leave_steps(
    group: ClassicData, entries: Sequence[LeaveEntry], ticket: Ticket, now: Now
) -> Steps[None]:
    """Remove the given members, answer, and start one rebalance for all of them."""
    if group.state is ClassicState.DEAD:
        group.outbox.reply(ticket, LeaveResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        return
    errors: list[ErrorCode] = []
    triggers: list[Trigger] = []
    for count, entry in enumerate(entries):
        if count and count % ENTRIES_PER_STEP == 0:
            yield
        if entry.member_id in group.roster.pending:
            group.forget_pending_id(entry.member_id)
            group.outbox.note(UnusedIdDropped(entry.member_id))
            errors.append(ErrorCode.NONE)
            continue
        found = _find(group, entry)
        if isinstance(found, ErrorCode):
            errors.append(found)
            continue
        triggers.append(_remove(group, found, entry, now))
        errors.append(ErrorCode.NONE)
    group.outbox.reply(ticket, LeaveResult(entries=tuple(errors)))
    if triggers:
        rebalance.cause_all(group, triggers, now)
    else:
        # A rebalance may have waited only for an unused id that was given back. In a Stable group
        # the id does not start a rebalance; in Kafka it does.
        rebalance.try_complete(group, now)


def _find(group: ClassicData, entry: LeaveEntry) -> Member | ErrorCode:
    if not entry.member_id:
        # An administrator knows the instance, not the member id of its process.
        return group.roster.holder_of(entry.instance_id) or ErrorCode.UNKNOWN_MEMBER_ID
    return group.find_member(entry.member_id, entry.instance_id)


def _unfetched_ms(group: ClassicData, entry: LeaveEntry, now: Now) -> int | None:
    """Return how long a leaving member has not fetched. None if it fetched recently, or has not
    fetched since the group became Stable.
    """
    unfetched_ms = entry.unfetched_ms
    if unfetched_ms is None or unfetched_ms < UNFETCHED_LEAST_MS:
        return None
    is_since_stable = now.wall_ms - unfetched_ms >= group.state_timestamp_ms
    return unfetched_ms if group.state is ClassicState.STABLE and is_since_stable else None


def _remove(group: ClassicData, member: Member, entry: LeaveEntry, now: Now) -> Trigger:
    by_admin = not entry.member_id or ADMIN_REASON in (entry.reason or "").lower()
    trigger = Trigger(
        TriggerKind.REMOVED_BY_ADMIN if by_admin else TriggerKind.MEMBER_LEFT,
        member.ref,
        was_leader=member.member_id == group.roster.leader_id,
        removed=(member.member_id,),
        detail=entry.reason or "",
        unfetched_ms=None if by_admin else _unfetched_ms(group, entry, now),
        connection=None if by_admin else entry.connection,
    )
    fate = RemovalReason.REMOVED_BY_ADMIN if by_admin else RemovalReason.LEFT
    group.remove_member(member, fate, text=entry.reason)
    return trigger
