"""The watched groups and their rebalances, as pages, console and metrics read them.

Everything here belongs to the thread of the HTTP port. The thread that follows the groups sends
what has changed, and never waits for a page.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from kohort.broker.groups_seen import GroupSeen, OffsetsSeen, Readable
from kohort.broker.history.rings import Rings, StoredRecord, pack
from kohort.groups.description import WaitingFor
from kohort.groups.events import GroupRestored
from kohort.groups.history.names import AVOIDED
from kohort.groups.requests import Now
from kohort.groups.steps import Steps
from kohort.protocol.errors import NO_ERROR, ErrorCode
from kohort.watch.core.changes import GroupEvent
from kohort.watch.core.view import OffsetsOnlyView, View
from kohort.watch.positions import NO_OFFSETS, Positions

if TYPE_CHECKING:
    from kohort.broker.coordinator.host import GroupObserver
    from kohort.broker.runtime.clock import Clock
    from kohort.groups.history.model import HistoryRecord

Json: TypeAlias = dict[str, Any]

RECORDS_MAX: Final = 100
"""Maximum number of records of each group."""

MEMORY_BYTES: Final = 32 << 20
"""Maximum memory of all records; the oldest ones are dropped."""

RETENTION_MS: Final = 30 * 86_400_000
"""How long the records of a removed group are kept."""

_ANY_CHANGE: Final = GroupRestored(0, None, None, {})
"""The event that observers get for any change of a group."""


class NewRecord(NamedTuple):
    group_id: str
    sequence: int
    packed: StoredRecord
    is_rebalance: bool


def encoded(record: Json) -> NewRecord:
    packed, is_rebalance = pack(text_of(record)), record["kind"] != AVOIDED
    return NewRecord(record["group"], record["sequence"], packed, is_rebalance=is_rebalance)


def text_of(record: Json) -> bytes:
    """Return a record as JSON in the form that pages read: its members are the last field."""
    data = dict(record)
    members = data.pop("members", None)
    if members is not None:
        data["members"] = members
    return json.dumps(data, separators=(",", ":")).encode()


class News(NamedTuple):
    records: Sequence[NewRecord]
    """New records of the history."""
    counted: Sequence[HistoryRecord]
    """The records that metrics count: those created since the watcher has caught up."""
    views: Mapping[str, View | None]
    """The groups that have changed; None for a group that was removed or is no longer known."""
    running: Mapping[str, bytes | None]
    """Records of rebalances in progress by group; None for a group without one."""
    events: Sequence[GroupEvent]
    """New events of the groups; none before the watcher has caught up."""
    removed: Collection[str]
    """Groups that were removed."""


class WatchedRebalances:
    """The latest records of each group; implements `RebalancesSeen`."""

    def __init__(self) -> None:
        self._rings = Rings(RECORDS_MAX, MEMORY_BYTES)
        self._running: dict[str, bytes] = {}

    def add(self, record: NewRecord) -> None:
        self._rings.add(
            record.group_id, record.sequence, record.packed, is_rebalance=record.is_rebalance
        )

    def run(self, group_id: str, text: bytes | None) -> None:
        """Set the record of the group's rebalance in progress; `text`: None if it has ended."""
        if text is None:
            self._running.pop(group_id, None)
        else:
            self._running[group_id] = text

    def remove(self, group_id: str, now_ms: int) -> None:
        """Mark a group as removed: its records are dropped before those of existing groups. Drop
        a limited number of the groups that were removed more than RETENTION_MS ago.
        """
        self._rings.mark_removed(group_id, now_ms)
        self._rings.forget_removed(now_ms - RETENTION_MS)

    def totals(self, group_id: str) -> tuple[int, int]:
        ring = self._rings.get(group_id)
        return (0, 0) if ring is None else (ring.rebalance_count, ring.avoided_count)

    def stored_records(self, group_id: str) -> list[StoredRecord]:
        ring = self._rings.get(group_id)
        return [] if ring is None else list(ring.records)

    def open_text_steps(self, group_id: str) -> Steps[bytes] | None:
        text = self._running.get(group_id)
        return None if text is None else _ready(text)

    def stats(self) -> Mapping[str, int]:
        return {
            "records": self._rings.record_count,
            "memory_bytes": self._rings.memory_bytes,
            "waiting": 0,
            "lost": 0,
            "dropped": 0,
        }


def _ready(text: bytes) -> Steps[bytes]:
    yield
    return text


class WatchedGroup:
    """One group; implements `GroupSeen`."""

    def __init__(self, group_id: str, view: View, offsets: OffsetsSeen) -> None:
        self.group_id = group_id
        self.offsets = offsets
        self.describe = view.describe
        self.describe_members = view.describe_members
        self.describe_waiting = view.describe_waiting
        self.gauges = view.gauges

    def subscribed_topics(self) -> frozenset[str] | None:
        """Return None: only pages about topics need the set, and a watcher has no such pages."""
        return None


class WatchedGroups:
    """All groups with records or committed offsets; implements `GroupsSeen`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._views: dict[str, View] = {}
        self._positions = Positions({}, {})
        self._observers: list[GroupObserver] = []

    # Changes.

    def update(self, group_id: str, view: View | None) -> None:
        """Replace the view of a group (None if it was removed), and call the observers."""
        if view is None:
            self._views.pop(group_id, None)
        else:
            self._views[group_id] = view
        now = Now(self._clock.monotonic_ms(), self._clock.wall_ms())
        for observer in self._observers:
            observer.observe(group_id, _ANY_CHANGE, now)

    def locate(self, positions: Positions) -> None:
        self._positions = positions

    # Methods of `GroupsSeen`.

    def now(self) -> Now:
        """Return the wall-clock time as `ms` too: records and polls have no monotonic time."""
        wall_ms = self._clock.wall_ms()
        return Now(wall_ms, wall_ms)

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def group_ids(self) -> list[str]:
        return list(dict.fromkeys((*self._views, *self._positions.by_group)))

    def groups(self) -> Iterable[GroupSeen]:
        return filter(None, map(self.group, self.group_ids()))

    def group(self, group_id: str) -> GroupSeen | None:
        view = self._views.get(group_id)
        offsets = self._positions.by_group.get(group_id)
        if view is None and offsets is None:
            return None
        return WatchedGroup(group_id, view or OffsetsOnlyView(group_id), offsets or NO_OFFSETS)

    living_group = group

    def read_error(self, group_id: str) -> ErrorCode:
        del group_id
        return NO_ERROR

    def waiting(self) -> Iterable[tuple[str, WaitingFor]]:
        for group_id, view in self._views.items():
            waiting = view.describe_waiting()
            if waiting is not None:
                yield group_id, waiting

    def add_observer(self, observer: GroupObserver) -> None:
        self._observers.append(observer)

    def remove_observer(self, observer: GroupObserver) -> None:
        self._observers.remove(observer)

    # Offsets.

    def readable(self, topic: str, index: int) -> Readable | None:
        return self._positions.readable.get((topic, index))
