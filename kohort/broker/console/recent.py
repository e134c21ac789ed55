"""A group's recent rebalances, from the history, and the cause of the newest.

A list shows the recent rebalances of a hundred groups, so no record is parsed more than once, and
members are not parsed.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.broker.groups_seen import RebalancesSeen
from kohort.broker.history.rings import StoredRecord
from kohort.broker.http.rebalance_json import without_members
from kohort.groups.history.json_form import parse_text
from kohort.groups.history.model import AssignedRecord, AvoidedRecord, HistoryRecord
from kohort.groups.history.names import AVOIDED
from kohort.groups.history.sentence import PROBLEMS
from kohort.groups.history.wording import cause_text, causes_text

Json: TypeAlias = dict[str, Any]

HOUR_MS: Final = 3_600_000
BINS: Final = 12
"""Number of bins of the last hour, each of five minutes."""

GROUPS_REMEMBERED: Final = 1_000

_HEAD_BYTES: Final = 2_048
"""Enough bytes for a record's kind, group id and time."""

_STARTED: Final = re.compile(rb'"(?:started_)?at_ms":(\d+),"trigger":\{"kind":"(\w+)"')
_PROBLEM: Final = re.compile(
    rb'"at_ms":(\d+),"trigger":\{"kind":"(%b)"'
    % b"|".join(kind.value.encode() for kind in PROBLEMS)
)
PROBLEMS_KEPT: Final = 5
_AVOIDED: Final = b'"kind":"%b"' % AVOIDED.encode()


class Beginning(NamedTuple):
    at_ms: int
    """Time at which the rebalance began."""
    cause: str
    """Kind of the rebalance's trigger."""


class Problem(NamedTuple):
    """A record that needs an operator's attention although the group did not rebalance."""

    at_ms: int
    kind: str
    text: str


class Recent(NamedTuple):
    rebalances: tuple[Beginning, ...]
    """Rebalances in the hour before this value was computed, except avoided ones; newest first."""
    last: Json | None
    """The newest rebalance: its time, the kind of its cause, how certain the cause is, and the
    cause as text."""

    problems: tuple[Problem, ...] = ()
    """At most `PROBLEMS_KEPT` problems, newest first; some may be older than an hour."""

    def bins(self, now_ms: int) -> list[int]:
        """Return the number of rebalances in each bin of the last hour, the oldest first."""
        counts = [0] * BINS
        for rebalance in self.rebalances:
            place = (rebalance.at_ms - (now_ms - HOUR_MS)) * BINS // HOUR_MS
            if 0 <= place <= BINS:
                counts[min(place, BINS - 1)] += 1
        return counts


def beginning_of(kept: StoredRecord) -> Beginning | None:
    """Parse the first bytes of a record; None for an avoided rebalance, or a malformed record."""
    head = kept.head(_HEAD_BYTES)
    match = None if _AVOIDED in head[:64] else _STARTED.search(head)
    return None if match is None else Beginning(int(match[1]), match[2].decode())


def record_without_members(kept: StoredRecord) -> HistoryRecord:
    """Parse a record without its members. Raises ValueError."""
    return parse_text(without_members(kept.text))


class Recents:
    """Recent rebalances of the most recently requested groups."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[tuple[int, int], Recent]] = OrderedDict()

    def recent(self, history: RebalancesSeen, group_id: str, now_ms: int) -> Recent:
        """Return a group's recent rebalances; takes half a millisecond if there is a new record."""
        totals = history.totals(group_id)
        known = self._known.get(group_id)
        if known is not None and known[0] == totals:
            self._known.move_to_end(group_id)
            return known[1]
        recent = _recent_of(history.stored_records(group_id), now_ms)
        self._known[group_id] = (totals, recent)
        if len(self._known) > GROUPS_REMEMBERED:
            self._known.popitem(last=False)
        return recent


def _recent_of(kept: Sequence[StoredRecord], now_ms: int) -> Recent:
    rebalances: list[Beginning] = []
    problems: list[Problem] = []
    last: Json | None = None
    for record in reversed(kept):
        begun = beginning_of(record)
        if begun is None:
            if len(problems) < PROBLEMS_KEPT and (problem := _problem_of(record)) is not None:
                problems.append(problem)
            continue
        if last is None:
            last = _last_json(record, begun)
        if begun.at_ms < now_ms - HOUR_MS:
            break
        rebalances.append(begun)
    return Recent(tuple(rebalances), last, tuple(problems))


def _problem_of(kept: StoredRecord) -> Problem | None:
    match = _PROBLEM.search(kept.head(_HEAD_BYTES))
    if match is None:
        return None
    trigger = record_without_members(kept).trigger
    return Problem(int(match[1]), match[2].decode(), cause_text(trigger))


def _last_json(kept: StoredRecord, begun: Beginning) -> Json:
    names = ("certainty", "text", "sequence")
    data: Json = {"at_ms": begun.at_ms, "cause": begun.cause, **dict.fromkeys(names)}
    try:
        record = record_without_members(kept)
    except ValueError:
        return data
    data["sequence"] = record.sequence
    data["certainty"] = record.trigger.certainty.value
    if isinstance(record, AvoidedRecord):
        data["text"] = cause_text(record.trigger)
    elif isinstance(record, AssignedRecord):
        data["text"] = causes_text(record.trigger, record.further_causes)
    else:
        data["text"] = causes_text(record.trigger, record.further_causes, record.protocol_type)
    return data
