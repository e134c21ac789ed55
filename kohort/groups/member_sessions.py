"""The sessions of members of groups for which the broker assigns. A heartbeat moves the end of its
session, not the timer, which checks the session when it fires.
"""

from dataclasses import dataclass
from typing import Final

from kohort.groups.effects import Schedule, TimerKey
from kohort.groups.outbox import Outbox

SESSION: Final = "session"
"""Kind of the timer that removes a silent member."""


@dataclass(slots=True)
class Session:
    """The session of one member. A heartbeat moves the end, not the timer."""

    deadline_ms: int
    timer_ms: int | None = None
    """When the timer will check the session; None while no timer runs."""


def extend(sessions: dict[str, Session], outbox: Outbox, member_id: str, deadline_ms: int) -> None:
    """Move the end of a member's session; begin it if there is none."""
    session = sessions.get(member_id)
    if session is None:
        session = sessions[member_id] = Session(deadline_ms)
    session.deadline_ms = deadline_ms
    if session.timer_ms is None or session.timer_ms > deadline_ms:
        session.timer_ms = deadline_ms
        outbox.emit(Schedule(TimerKey(SESSION, member_id), deadline_ms))


def has_expired(sessions: dict[str, Session], outbox: Outbox, member_id: str, now_ms: int) -> bool:
    """Check a session whose timer has fired; if the session continues, so does the timer."""
    session = sessions.get(member_id)
    if session is None or session.timer_ms is None or session.timer_ms > now_ms:
        return False
    if session.deadline_ms > now_ms:
        session.timer_ms = session.deadline_ms
        outbox.emit(Schedule(TimerKey(SESSION, member_id), session.deadline_ms))
        return False
    session.timer_ms = None
    return True
