"""Heartbeat answers, sessions and other timers of members of consumer and share groups. A heartbeat
sets the deadline of a session, but rarely its timer, which checks the deadline when it fires.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from kohort.groups.effects import Schedule, TimerKey
from kohort.groups.member_memory import MemberMemory
from kohort.groups.outbox import Answers, Outbox
from kohort.groups.requests import Connection, Now
from kohort.groups.topics import Partition
from kohort.protocol.errors import ErrorCode


class HeartbeatResult(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    heartbeat_interval_ms: int = 0
    assigned: Collection[Partition] | None = None
    """The member's assignment; None if the member knows it already."""


class Rejected(Exception):  # noqa: N818 - it is an answer and not a failure of the program.
    """Rejects a request: the response has the error."""

    def __init__(self, error: ErrorCode, message: str, refusal: str = "") -> None:
        """`refusal`: reason shown in the group's history; empty if clients retry this error."""
        super().__init__(message)
        self.result = HeartbeatResult(error, message)
        self.refusal = refusal


NAMES_BYTES_MAX: Final = 1_000_000
"""Maximum size of a member's topic names. Kafka can store no more in a record, unless its
`message.max.bytes` is raised."""


def check_names(names: Collection[str] | None) -> None:
    """Reject a subscription that is too large for a record, before it is processed.

    Raises:
        Rejected: UNKNOWN_SERVER_ERROR, as in Kafka.
    """
    size = sum([len(name) for name in names or ()]) + 2 * len(names or ())
    if size > NAMES_BYTES_MAX:
        problem = f"its topic names have {size} bytes, {NAMES_BYTES_MAX} are allowed"
        raise Rejected(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The member is too large: {problem}.", problem
        )


def check_room(memory: MemberMemory, more_bytes: int) -> None:
    """Reject a new or larger member if all groups' members would exceed their memory limit.

    Raises:
        Rejected: GROUP_MAX_SIZE_REACHED.
    """
    if not memory.has_room(more_bytes):
        raise Rejected(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            "The members of all groups take as much memory as the broker allows.",
            "the members of all groups take as much memory as the broker allows",
        )


SESSION: Final = "session"
"""Kind of the timer that removes a silent member."""


@dataclass(slots=True)
class Session:
    """A member's session. A heartbeat moves the deadline, and usually not the timer."""

    deadline_ms: int
    timer_ms: int | None = None
    """When the timer will check the session; None while no timer runs."""
    connection: Connection | None = None
    """The connection of the member's last heartbeat."""


def extend(sessions: dict[str, Session], outbox: Outbox, member_id: str, deadline_ms: int) -> None:
    """Set the deadline of a member's session; begin the session if there is none."""
    session = sessions.get(member_id)
    if session is None:
        session = sessions[member_id] = Session(deadline_ms)
    session.deadline_ms = deadline_ms
    if session.timer_ms is None or session.timer_ms > deadline_ms:
        session.timer_ms = deadline_ms
        outbox.emit(Schedule(TimerKey(SESSION, member_id), deadline_ms))


def note_connection(
    sessions: dict[str, Session], member_id: str, connection: Connection | None
) -> None:
    """Store the connection of a heartbeat, if the member has a session."""
    session = sessions.get(member_id)
    if session is not None:
        session.connection = connection


def has_expired(sessions: dict[str, Session], outbox: Outbox, member_id: str, now_ms: int) -> bool:
    """Whether a session is over when its timer fires. If it is not, set the timer again."""
    session = sessions.get(member_id)
    if session is None or session.timer_ms is None or session.timer_ms > now_ms:
        return False
    if session.deadline_ms > now_ms:
        session.timer_ms = session.deadline_ms
        outbox.emit(Schedule(TimerKey(SESSION, member_id), session.deadline_ms))
        return False
    session.timer_ms = None
    return True


def take_due(deadlines: dict[TimerKey, int], key: TimerKey, now_ms: int) -> bool:
    """Remove an expired timer; False if it was rescheduled or cancelled meanwhile."""
    deadline_ms = deadlines.get(key)
    if deadline_ms is None or deadline_ms > now_ms:
        return False
    del deadlines[key]
    return True


RETRY_MS: Final = 500
"""Delay before a timer expires again if its changes could not be stored, as in Kafka."""


class Retry(Answers):
    """Restarts expired timers if their changes could not be stored."""

    def __init__(
        self,
        sessions: dict[str, Session],
        deadlines: dict[TimerKey, int],
        keys: Sequence[TimerKey],
        now: Now,
    ) -> None:
        super().__init__(None, None, _no_answer)
        self._sessions = sessions
        self._deadlines = deadlines
        self._keys = keys
        self._at_ms = now.ms + RETRY_MS

    def give(self, outbox: Outbox, error: ErrorCode) -> None:
        """Restart the expired timers if the append failed."""
        if not error:
            return
        for key in self._keys:
            if key.kind == SESSION:
                session = self._sessions.get(key.member_id)
                if session is None or session.timer_ms is not None:
                    continue
                session.timer_ms = self._at_ms
            else:
                self._deadlines.setdefault(key, self._at_ms)
            outbox.emit(Schedule(key, self._at_ms))


def _no_answer(error: ErrorCode) -> None:
    raise AssertionError(error)
