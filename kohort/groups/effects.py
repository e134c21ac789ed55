"""The effects of a group's commands, for the caller to carry out: responses, appends, timers.

Effects must not be changed. They are named tuples, except `Reply` and `Note`: a rebalance creates
thousands of these, and dataclasses that are not frozen take half the time to create.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from kohort.groups.events import Event
from kohort.groups.records import DurableRecord
from kohort.groups.requests import Ticket


class TimerKey(NamedTuple):
    """Identifies a timer of a group; scheduling a key again replaces its deadline."""

    kind: str
    """Purpose of the timer; each kind of group has its own purposes."""
    member_id: str = ""
    """Id of the member that the timer is for; empty for a timer of the group."""


@dataclass(slots=True)
class Reply:
    """Answer the request of `ticket`. Each request gets one Reply, alone or within `Replies`."""

    ticket: Ticket
    body: Any
    """The result of the request, such as a JoinResult; see :mod:`kohort.groups.requests`."""


class Replies(NamedTuple):
    """Answer these requests in this order, but not necessarily at once.

    The end of a phase answers thousands of requests. The command determines the content, but
    each `Reply` is created while `replies` is iterated, so that other work can run in between.
    """

    replies: Iterator[Reply]
    reply_count: int


class Append(NamedTuple):
    """Make these records durable, in order, as one unit; then call `on_appended` or
    `on_append_failed`.

    A list of effects has at most one Append, as the last. Until the result is reported, only reads
    and methods documented as callable during an append, such as `heartbeat`, may be called.
    """

    records: tuple[DurableRecord, ...]
    is_paced: bool = False
    """Whether the group's next GroupMetadata record, which contains all members, should be
    appended only after a pause; see `kohort.broker.coordinator.inbox`."""


class Schedule(NamedTuple):
    """Call `on_deadlines` with `key` at `deadline_ms` (monotonic). This replaces an earlier
    deadline of the key.
    """

    key: TimerKey
    deadline_ms: int


class ScheduleSessions(NamedTuple):
    """Like a `Schedule` for each key, but may be carried out later: no new deadline is near, and
    each key keeps its present deadline until then.
    """

    deadlines: Mapping[TimerKey, int]
    """The deadline of each key. The mapping is not modified afterwards."""


class Cancel(NamedTuple):
    """Cancel the timer of `key`. An expiry that is already queued does no harm."""

    key: TimerKey


@dataclass(slots=True)
class Note:
    """An event for the rebalance history and the metrics."""

    event: Event


Effect: TypeAlias = Reply | Replies | Append | Schedule | ScheduleSessions | Cancel | Note
