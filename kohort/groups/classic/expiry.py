"""Handles expired timers: of sessions, unused member ids, the join phase and the sync phase.

Timers that expire together are handled together, so that a thousand members that fail at the same
time cause one rebalance. Each is checked against its present deadline, because a heartbeat, a
response or a new rebalance may have moved the deadline after the expiry was queued.
"""

from collections.abc import Iterable

from kohort.groups.classic import rebalance
from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.member import JOIN_TIMER, PENDING, SESSION, SYNC_TIMER, Member
from kohort.groups.classic.states import ClassicState
from kohort.groups.effects import ScheduleSessions, TimerKey
from kohort.groups.events import RemovalReason, Trigger, TriggerKind, UnusedIdDropped
from kohort.groups.requests import Now, is_open


def on_deadlines(group: ClassicData, keys: Iterable[TimerKey], now: Now) -> None:
    """Handle all keys: those of members first, then that of the join or sync phase, because
    removals may complete the phase.
    """
    if group.state is ClassicState.DEAD:
        return
    triggers: list[Trigger] = []
    phases: list[TimerKey] = []
    moved: dict[TimerKey, int] = {}
    for key in keys:
        if key.kind == SESSION:
            member = group.roster.get(key.member_id)
            if member is not None and _has_expired(member, now, moved):
                triggers.append(_expire(group, member))
        elif key.kind == PENDING:
            if group.take_due(key, now.ms):
                del group.roster.pending[key.member_id]
                group.unused_ids.discard(key.member_id)
                group.outbox.note(UnusedIdDropped(key.member_id))
        else:
            phases.append(key)
    if moved:
        group.outbox.emit(ScheduleSessions(moved))
    if triggers:
        rebalance.cause_all(group, triggers, now)
    else:
        rebalance.try_complete(group, now)
    # The steps above may have rescheduled or cancelled the phase's timer; take_due checks.
    for key in phases:
        if group.take_due(key, now.ms):
            _end_phase(group, key, now)


def _end_phase(group: ClassicData, key: TimerKey, now: Now) -> None:
    if key == JOIN_TIMER:
        rebalance.on_join_deadline(group, now)
    else:
        assert key == SYNC_TIMER
        _remove_silent(group, now)


def _has_expired(member: Member, now: Now, moved: dict[TimerKey, int]) -> bool:
    """Whether a session whose timer has fired is over. If it is not, set the timer again: add the
    new deadline to `moved`.

    A member that waits for a response need not send heartbeats; its session restarts with that
    response. The exception is a member that has never completed a join: its process may have ended
    and closed its connection.
    """
    if member.session_timer_ms is None or member.session_timer_ms > now.ms:
        return False
    member.session_timer_ms = None
    if member.session_deadline_ms > now.ms:
        member.session_timer_ms = moved[member.session_key] = member.session_deadline_ms
        return False
    return member.is_new or not member.is_parked


def _expire(group: ClassicData, member: Member) -> Trigger:
    trigger = Trigger(
        TriggerKind.NEW_MEMBER_EXPIRED if member.is_new else TriggerKind.SESSION_EXPIRED,
        member.ref,
        was_leader=member.member_id == group.roster.leader_id,
        removed=(member.member_id,),
        # Until its first join is answered, a new member has `new_member_join_timeout_ms` instead.
        timeout_ms=None if member.is_new else member.session_timeout_ms,
        was_connected=None if member.is_new else is_open(member.connection),
    )
    fate = RemovalReason.NEW_MEMBER_EXPIRED if member.is_new else RemovalReason.SESSION_EXPIRED
    group.remove_member(member, fate)
    return trigger


def _remove_silent(group: ClassicData, now: Now) -> None:
    """End the sync phase: remove the members that have not synced, static or not.

    A rebalance cancels the sync timer, so the expired timer is that of the present generation.
    """
    silent = [member for member in group.roster if member.member_id in group.pending_sync]
    if not silent:
        return
    trigger = Trigger(
        TriggerKind.SYNC_EXPIRED,
        silent[0].ref,
        was_leader=any(member.member_id == group.roster.leader_id for member in silent),
        removed=tuple(member.member_id for member in silent),
        timeout_ms=group.roster.rebalance_timeout_ms(),
    )
    for member in silent:
        group.remove_member(member, RemovalReason.SYNC_EXPIRED)
    rebalance.cause(group, trigger, now)
