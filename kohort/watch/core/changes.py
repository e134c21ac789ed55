"""Collects the changes of the watched groups until the HTTP port takes them."""

from typing import Final, NamedTuple, TypeAlias

from kohort.groups.events import Event, GroupRemoved
from kohort.groups.requests import Now

GroupEvent: TypeAlias = tuple[str, Event, Now]

EVENTS_MAX: Final = 100_000
"""Maximum number of events kept until they are taken; further events are missing in the metrics."""


class Taken(NamedTuple):
    groups: set[str]
    removed: set[str]
    """Groups that were removed; some may exist again."""
    events: list[GroupEvent]


class Changes:
    """The ids of changed groups, and the groups' events, since the last `take`."""

    __slots__ = ("_events", "_groups", "_removed", "keeps_events", "keeps_groups")

    def __init__(self) -> None:
        self.keeps_groups = False
        """Whether to record which groups have changed: only with an HTTP port."""
        self.keeps_events = False
        """Whether to record the events too, for the metrics; not for records read at the start."""
        self._groups: set[str] = set()
        self._removed: set[str] = set()
        self._events: list[GroupEvent] = []

    def note(self, group_id: str) -> None:
        if self.keeps_groups:
            self._groups.add(group_id)

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        if self.keeps_groups and event.__class__ is GroupRemoved:
            self._removed.add(group_id)
        if self.keeps_events and len(self._events) < EVENTS_MAX:
            self._events.append((group_id, event, now))

    def take(self) -> Taken:
        taken = Taken(self._groups, self._removed, self._events)
        self._groups, self._removed, self._events = set(), set(), []
        return taken
