"""The timers of members: sessions, revocations, and the joins and syncs of classic members."""

from typing import Final

from kohort.groups.consumer.data import ConsumerData
from kohort.groups.consumer.draft import Draft
from kohort.groups.consumer.member import Member, MemberState
from kohort.groups.effects import Cancel, Schedule, TimerKey
from kohort.groups.member_sessions import SESSION, extend
from kohort.groups.requests import Now

REVOCATION: Final = "revocation"
"""Kind of the timer that removes a member that does not revoke partitions."""

JOIN: Final = "join"
"""Kind of the timer that removes a classic member that was asked to rejoin and does not."""

SYNC: Final = "sync"
"""Kind of the timer that removes a classic member that has joined and does not sync."""


LOST_MAX: Final = 100
"""Maximum number of members in `ConsumerData.lost`; the oldest ones are forgotten first."""
LOST_CHARS_MAX: Final = 100
"""Maximum length of their ids; those of clients have 22 or 36 characters."""


def timeout_of(data: ConsumerData, member: Member) -> int:
    """Return the session timeout: the group's, or the one that a classic member has stated."""
    if member.classic is not None:
        return member.classic.session_timeout_ms
    return data.settings.session_timeout_ms


def restart(data: ConsumerData, member: Member, now_ms: int) -> None:
    """Restart a member's session."""
    extend(data.sessions, data.outbox, member.member_id, now_ms + timeout_of(data, member))


def silent_ms(draft: Draft, member: Member, now: Now) -> int | None:
    """Return the time since a member's last heartbeat; None if unknown, or if it was just now."""
    data = draft.data
    session = data.sessions.get(member.member_id)
    if session is None or member.member_id in draft.sessions:
        return None
    return max(now.ms - (session.deadline_ms - timeout_of(data, member)), 0) or None


def note_lost(data: ConsumerData, member: Member) -> None:
    """Remember a member whose session has expired: its process keeps the member id."""
    if len(member.member_id) > LOST_CHARS_MAX:
        return
    session = data.sessions[member.member_id]
    data.lost[member.member_id] = session.deadline_ms - timeout_of(data, member)
    if len(data.lost) > LOST_MAX:
        del data.lost[next(iter(data.lost))]


def follow_revocation(data: ConsumerData, old: Member | None, new: Member, now: Now) -> None:
    """Set or cancel the timer that bounds how long a member may keep revoked partitions."""
    key = TimerKey(REVOCATION, new.member_id)
    if new.state is MemberState.UNREVOKED_PARTITIONS:
        if old is None or old.state is not new.state or old.pending != new.pending:
            data.told_ms[new.member_id] = now.wall_ms
            data.deadlines[key] = now.ms + max(new.rebalance_timeout_ms, 0)
            data.outbox.emit(Schedule(key, data.deadlines[key]))
    else:
        data.told_ms.pop(new.member_id, None)
        cancel(data, key)


def forget(data: ConsumerData, member_id: str) -> None:
    """Cancel the timers of a member that was removed."""
    data.outbox.emit(Cancel(TimerKey(SESSION, member_id)))
    for kind in (REVOCATION, JOIN, SYNC):
        cancel(data, TimerKey(kind, member_id))


def cancel(data: ConsumerData, key: TimerKey) -> None:
    if data.deadlines.pop(key, None) is not None:
        data.outbox.emit(Cancel(key))
