"""The effects of a group's steps, which its shell carries out.

Named tuples. A reply and a note, of which a rebalance has thousands, are dataclasses that are not
frozen: these are created in half the time, and are not to be changed either.
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
    """The member whose timer it is, of which there may be thousands; empty if it is the group's."""


@dataclass(slots=True)
class Reply:
    """Answer now; each ticket is in exactly one Reply, alone or within `Replies`."""

    ticket: Ticket
    body: Any
    """The result class that belongs to the request; see
    :mod:`kohort.groups.requests`."""


class Replies(NamedTuple):
    """Answer all of these, in this order, but not necessarily at once.

    The end of a phase answers thousands of requests. Their content is fixed by the step; the
    answers themselves are created as they are taken, so that a shell can run other work in between.
    """

    replies: Iterator[Reply]
    reply_count: int


class Append(NamedTuple):
    """Make these records durable, in order, as one unit; then call `on_appended` or
    `on_append_failed`.

    At most one per step, and its last effect. Until the result is reported, the group must not be
    stepped, except by `heartbeat` and reads.
    """

    records: tuple[DurableRecord, ...]
    is_paced: bool = False
    """Whether the next append that holds the whole group should wait; see
    `kohort.broker.coordinator.inbox`."""


class Schedule(NamedTuple):
    """Call `on_deadlines` with `key` at `deadline_ms` (monotonic), its only deadline."""

    key: TimerKey
    deadline_ms: int


class ScheduleSessions(NamedTuple):
    """Schedule each of these as with `Schedule`, but not necessarily at once: none of them expires
    soon, and until it is rescheduled each keeps its present deadline.
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
