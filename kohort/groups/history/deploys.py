"""Detects deployments in a history: several processes restarted or were replaced, one after
another.

No client says that it is being deployed, except by a stated RESTART; what can be observed is that
processes leave and come back. The rule is simpler than that of the report's acts
(kohort/insight/analysis/acts.py): it needs only causes, and makes one pass.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kohort.groups.events import TriggerKind
from kohort.groups.history.model import (
    AvoidedRecord,
    HistoryRecord,
    RebalanceRecord,
    TriggerRecord,
)
from kohort.groups.steps import Steps

QUIET_MS: Final = 90_000
"""The longest pause between two rebalances of a deployment: a process stops, its successor starts
and becomes ready, and then the next one is replaced."""
PROCESSES_MIN: Final = 2
"""A single process that leaves and returns was restarted, or has crashed."""

_CAME: Final = frozenset(
    {TriggerKind.MEMBER_ADDED, TriggerKind.STATIC_ADDED, TriggerKind.STATIC_REPLACED}
)
_WENT: Final = frozenset(
    {
        TriggerKind.MEMBER_LEFT,
        TriggerKind.REMOVED_BY_ADMIN,
        TriggerKind.SESSION_EXPIRED,
    }
)


class Deploy(NamedTuple):
    """Consecutive records in which processes were exchanged."""

    first_sequence: int
    last_sequence: int
    began_ms: int
    """Wall-clock time at which the first of them began."""
    ended_ms: int
    """The end of the last one; its beginning while it is in progress."""
    processes: int
    """The number of processes exchanged."""


def deploy_steps(records: Iterable[HistoryRecord]) -> Steps[list[Deploy]]:
    """Return the deployments in a group's records, oldest first; one step per record.

    Args:
        records: oldest first; their members are not needed.
    """
    found: list[Deploy] = []
    run: _Run | None = None
    for record in records:
        began_ms, ended_ms = _times(record)
        if run is None or began_ms - run.ended_ms > QUIET_MS:
            found += _exchanged(run)
            run = _Run(record.sequence, began_ms, ended_ms)
        run.add(record, ended_ms)
        yield
    return found + _exchanged(run)


def _exchanged(run: "_Run | None") -> list[Deploy]:
    deploy = None if run is None else run.deploy()
    return [] if deploy is None else [deploy]


class _Run:
    def __init__(self, sequence: int, began_ms: int, ended_ms: int) -> None:
        self._first_sequence = self._last_sequence = sequence
        self._began_ms = began_ms
        self.ended_ms = ended_ms
        self._came: set[str] = set()
        self._went: set[str] = set()
        self._restarted: set[str] = set()
        self._said_so: set[str] = set()

    def add(self, record: HistoryRecord, ended_ms: int) -> None:
        self._last_sequence = record.sequence
        self.ended_ms = max(self.ended_ms, ended_ms)
        self._note(record.trigger)
        if not isinstance(record, AvoidedRecord):
            for cause in record.further_causes:
                self._note(cause)

    def _note(self, cause: TriggerRecord) -> None:
        name = _process(cause)
        if cause.kind in _CAME:
            self._came.add(name)
            if name in self._went or cause.kind is TriggerKind.STATIC_REPLACED:
                self._restarted.add(name)
        # A dynamic member that is silent has crashed or pauses; a static one may be stopped.
        has_crashed = cause.kind is TriggerKind.SESSION_EXPIRED and cause.instance_id is None
        if cause.kind in _WENT and not has_crashed:
            self._went.add(name)
            self._went.update(cause.removed[1:])
        if cause.reason == "RESTART" and cause.reason_source == "tag":
            self._said_so.add(name)

    def deploy(self) -> Deploy | None:
        replaced = min(len(self._came - self._went), len(self._went - self._came))
        processes = max(len(self._restarted) + replaced, len(self._said_so))
        if processes < PROCESSES_MIN:
            return None
        return Deploy(
            self._first_sequence, self._last_sequence, self._began_ms, self.ended_ms, processes
        )


def _times(record: HistoryRecord) -> tuple[int, int]:
    if not isinstance(record, RebalanceRecord):
        return record.at_ms, record.at_ms
    return record.started_at_ms, record.started_at_ms + (record.timeline.finished_ms or 0)


def _process(cause: TriggerRecord) -> str:
    """Return an identity that survives a restart: the instance id, or client id and host."""
    return cause.instance_id or f"{cause.client_id}@{cause.host}"
