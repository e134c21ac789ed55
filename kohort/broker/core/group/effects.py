"""What a step of a group asks its shell to do. The core does nothing itself.

Named tuples, because the end of one join phase makes thousands of them.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

from kohort.broker.core.group.events import Event
from kohort.broker.core.group.records import DurableRecord
from kohort.broker.core.group.requests import Ticket

TimerKind: TypeAlias = Literal["session", "pending", "join", "sync"]


class TimerKey(NamedTuple):
    """Names one deadline of a group; scheduling a key again replaces its deadline."""

    kind: TimerKind
    member_id: str = ""


JOIN_TIMER = TimerKey("join")
SYNC_TIMER = TimerKey("sync")


class Reply(NamedTuple):
    """Answer now. Every ticket given to a group comes back in exactly one Reply, alone or as one of
    `Replies`.
    """

    ticket: Ticket
    body: Any
    """The result class that belongs to the request; see
    :mod:`kohort.broker.core.group.requests`.
    """


class Replies(NamedTuple):
    """Answer all of these, in this order, but not necessarily all at once.

    The end of a phase answers thousands. What is said to them is settled with the step; the answers
    themselves are made when they are taken, so that a shell can let others have a turn in between.
    """

    replies: Iterator[Reply]
    reply_count: int


class Append(NamedTuple):
    """Make these durable, in order, as one unit; then call `on_appended` or `on_append_failed`.

    At most one per step, and the last effect of it. Until the outcome is told, the group must not
    be stepped, except by `heartbeat` and reads.
    """

    records: tuple[DurableRecord, ...]


class Schedule(NamedTuple):
    """Call `on_deadlines` with `key` at `deadline_ms` (monotonic), and no longer before."""

    key: TimerKey
    deadline_ms: int


class ScheduleSessions(NamedTuple):
    """Schedule each of these like `Schedule`, but not necessarily all at once: none of them comes
    soon, and until it is scheduled again each keeps the deadline it had.
    """

    deadlines: Mapping[TimerKey, int]
    """Not changed afterwards."""


class Cancel(NamedTuple):
    """Forget the deadline of `key`. An expiry that is on its way already does no harm."""

    key: TimerKey


class Note(NamedTuple):
    """Something the rebalance history and the metrics want to know."""

    event: Event


Effect: TypeAlias = Reply | Replies | Append | Schedule | ScheduleSessions | Cancel | Note
