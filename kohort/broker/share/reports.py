"""Reports on records since the broker's start: counters per share-partition, and recently ended
deliveries.

Counters are updated once per acquired range, or per durable change of a range, so that a single
record costs next to nothing. The number of remembered deliveries is limited. Metrics use other
counters, which outlive the share-partitions: :mod:`kohort.broker.share.counts`.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from kohort.groups.share.acknowledgements import LOCK_TIMEOUT, SESSION_END, AcknowledgeType, Change
from kohort.groups.share.state_log import SharePartitionKey
from kohort.groups.share.states import RecordState
from kohort.groups.share.window import DeadLetters

COUNTED: Final = (
    "deliveries",
    "redeliveries",
    "accepts",
    "releases",
    "rejects",
    "lock_timeouts",
    "archived_at_limit",
)
"""Names of the counters, which count records; releases include those at the end of a session."""

Counts: TypeAlias = dict[str, int]
"""Counter by name, for every name in `COUNTED`."""

NOTHING_COUNTED: Final[Mapping[str, int]] = MappingProxyType(dict.fromkeys(COUNTED, 0))
"""Shared by share-partitions from which nothing was acquired, usually most of them."""

RANGES_MAX: Final = 1_000
"""Maximum remembered ranges per group, for released and archived records separately."""
REMEMBERING_MAX: Final = 100
"""Maximum groups whose ranges are remembered, in up to 40 MB; above it, the ranges of the group
that was added first are dropped."""
MEMBERS_MAX: Final = 1_000
"""Members whose deliveries are counted per group; one more resets the counts of all."""


class How(StrEnum):
    """How a delivery ended, if the record was not accepted."""

    RELEASED = "released"
    LOCK_TIMEOUT = "lock timeout"
    SESSION_END = "session end"
    REJECTED = "rejected"
    DELETED = "deleted"
    """The record was deleted from the log."""


_COUNTED_AS: Final[dict[int, tuple[str, How]]] = {
    AcknowledgeType.RELEASE: ("releases", How.RELEASED),
    AcknowledgeType.REJECT: ("rejects", How.REJECTED),
    LOCK_TIMEOUT: ("lock_timeouts", How.LOCK_TIMEOUT),
    SESSION_END: ("releases", How.SESSION_END),
}


class Outcome(NamedTuple):
    """The result of appending the dead letters of consecutive records."""

    topic: str
    """The dead-letter topic; empty if the dead letters could not be appended."""
    partition: int
    distance: int
    """The offset of each dead letter, minus that of its record."""
    error: str | None = None


class Ended(NamedTuple):
    """Consecutive records whose delivery ended in the same way."""

    first_offset: int
    last_offset: int
    key: SharePartitionKey
    how: How
    member_id: str | None
    delivery_count: int
    at_ms: int
    """Wall-clock time at which the delivery ended."""
    is_archived: bool
    """Whether the records are Archived: not delivered again."""
    dead_letter: Outcome | None = None


_NOTHING: Final[deque[Ended]] = deque(maxlen=0)
"""Shared by groups without remembered ranges: an empty deque takes 600 bytes."""


class GroupReport:
    __slots__ = ("acknowledged", "archived", "lock_timeouts", "released")

    def __init__(self) -> None:
        self.acknowledged: Counter[str] = Counter()
        """Records acknowledged by each member, with any type."""
        self.lock_timeouts: Counter[str] = Counter()
        """Records whose lock timed out, by the member that held the lock."""
        self.released = self.archived = _NOTHING

    def deliveries_of(self, key: SharePartitionKey, offset: int) -> list[Ended]:
        """Return the remembered deliveries of a record, oldest first."""
        found = [
            ended
            for ended in (*self.released, *self.archived)
            if ended.first_offset <= offset <= ended.last_offset and ended.key == key
        ]
        return sorted(found, key=lambda ended: ended.at_ms)


class Reports:
    """The reports of all share groups."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupReport] = {}
        self._remembering: dict[str, GroupReport] = {}

    def get(self, group_id: str) -> GroupReport | None:
        return self._groups.get(group_id)

    def remove(self, group_id: str) -> None:
        """Drop the report of a group, whose last share-partition was removed."""
        self._groups.pop(group_id, None)
        self._remembering.pop(group_id, None)

    def changed(
        self, key: SharePartitionKey, counts: Counts, changes: Iterable[Change], wall_ms: int
    ) -> None:
        """Count durable changes of a share-partition, in `counts` and in its group's report."""
        report = self._of(key.group_id)
        for first, last, state, delivery_count, lock, cause in changes:
            count = last - first + 1
            if cause < LOCK_TIMEOUT:
                report.acknowledged[lock.member_id] += count
            if cause not in _COUNTED_AS:
                counts["accepts"] += count if cause == AcknowledgeType.ACCEPT else 0
                continue
            name, how = _COUNTED_AS[cause]
            counts[name] += count
            if cause == LOCK_TIMEOUT:
                report.lock_timeouts[lock.member_id] += count
            is_archived = state is not RecordState.AVAILABLE
            if is_archived and how is not How.REJECTED:
                counts["archived_at_limit"] += count
            if state is not RecordState.ARCHIVING:
                alike = (key, how, lock.member_id, delivery_count, wall_ms, is_archived)
                self._remember(report, Ended(first, last, *alike))
        for members in (report.acknowledged, report.lock_timeouts):
            if len(members) > MEMBERS_MAX:
                members.clear()

    def archived(
        self, key: SharePartitionKey, outcomes: Iterable[tuple[DeadLetters, Outcome]], wall_ms: int
    ) -> None:
        """Record that records were archived, with the outcomes of appending their dead letters."""
        report = self._of(key.group_id)
        for (first, last, delivery_count, cause, member_id), outcome in outcomes:
            _, how = _COUNTED_AS[cause]
            alike = (key, how, member_id, delivery_count, wall_ms, True, outcome)
            self._remember(report, Ended(first, last, *alike))

    def deleted(self, key: SharePartitionKey, first: int, last: int, wall_ms: int) -> None:
        """Record that records were deleted from the log before their delivery was complete."""
        ended = Ended(first, last, key, How.DELETED, None, 0, wall_ms, is_archived=True)
        self._remember(self._of(key.group_id), ended)

    def _of(self, group_id: str) -> GroupReport:
        report = self._groups.get(group_id)
        if report is None:
            report = self._groups[group_id] = GroupReport()
        return report

    def _remember(self, report: GroupReport, ended: Ended) -> None:
        group_id = ended.key.group_id
        if group_id not in self._remembering:
            if len(self._remembering) >= REMEMBERING_MAX:
                former = self._remembering.pop(next(iter(self._remembering)))
                former.released = former.archived = _NOTHING
            self._remembering[group_id] = report
            report.released = deque(maxlen=RANGES_MAX)
            report.archived = deque(maxlen=RANGES_MAX)
        ranges = report.archived if ended.is_archived else report.released
        before = ranges[-1] if ranges else ended
        if before.last_offset + 1 == ended.first_offset and before[2:] == ended[2:]:
            ranges[-1] = Ended(before.first_offset, *ended[1:])
        else:
            ranges.append(ended)
