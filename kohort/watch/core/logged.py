"""Finds the causes of rebalances and of members' departures in the brokers' log lines about groups.

A line has the exact cause of a rebalance or departure, and perhaps the reason that the client sent.
The line is used if it names the generation before the rebalance, or the member that left, and if
its time is close to the stored records': the coordinator's clock sets both. So lines about another
group of the same name, or with times in a wrong time zone, are not used.
"""

from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from kohort.groups.events import (
    Certainty,
    Evidence,
    MemberRef,
    RemovalReason,
    Trigger,
    TriggerKind,
)
from kohort.groups.reasons import POLL_TIMEOUT, state_reason
from kohort.groups.records import GroupRecord
from kohort.insight.broker_log.lines import Failed, Left, Line, NotJoined, Preparing
from kohort.insight.broker_log.reasons import Cause as LoggedCause
from kohort.insight.broker_log.reasons import departure, parse_reason
from kohort.watch.core.fate import Fate
from kohort.watch.core.followed import ref
from kohort.watch.core.origin import Cause

LINES_KEPT: Final = 200_000
"""Maximum number of lines of all groups together: more than a week of most clusters' logs."""

_APART_MS: Final = 1_000
"""Tolerance for the time of a line: the record is written after the line, perhaps with the time of
a different clock."""

_LINE: Final = "log_line"
"""`Evidence.kind` of a log line."""

_REJOINS: Final = frozenset({TriggerKind.LEADER_REJOINED, TriggerKind.PROTOCOLS_CHANGED})
_KINDS: Final = {kind.value: kind for kind in TriggerKind if kind is not TriggerKind.UNKNOWN}
_REASONS: Final = {reason.value: reason for reason in RemovalReason}


_Key: TypeAlias = int | str


class _Began(NamedTuple):
    at_ms: int
    cause: LoggedCause


class _Gone(NamedTuple):
    at_ms: int
    reason: RemovalReason
    text: str | None


class Times(NamedTuple):
    """The times of two successive stored generations; `in` tests for a time between them."""

    after_ms: int
    before_ms: int

    def __contains__(self, at_ms: object) -> bool:
        return (
            isinstance(at_ms, int)
            and self.after_ms - _APART_MS <= at_ms <= self.before_ms + _APART_MS
        )


_T = TypeVar("_T", _Began, _Gone)


def _sole(lines: Sequence[_T] | None, times: Times) -> _T | None:
    """Return the last line within `times`; None if there is none, or if the lines within `times`
    differ: when the coordinator moves, the old broker may log a change that is never stored.
    """
    found = [line for line in lines or () if line.at_ms in times]
    if len({line[1:] for line in found}) != 1:
        return None
    return max(found, key=attrgetter("at_ms"))


class GroupLog:
    def __init__(self) -> None:
        self._began: dict[int, list[_Began]] = {}
        """Logged causes of rebalances, by generation."""
        self._gone: dict[str, list[_Gone]] = {}
        """Logged departures, by member id; several if a member rejoined under the same id."""
        self.is_used = False
        """Whether `origin` or `fate` has used a line."""

    def add(self, line: Line) -> list[_Key]:
        """Add a line; return the keys to pass to `drop` in order to forget it."""
        match line.fact:
            case Preparing(generation=generation, reason=reason):
                cause = parse_reason(reason)
                if cause.kind in _KINDS:
                    self._began.setdefault(generation, []).append(_Began(line.at_ms, cause))
                    return [generation]
                return []
            case Left(member=member, text=text):
                kind = _REASONS[departure(text).removeprefix("member_")]
                gone = {member.member_id: _Gone(line.at_ms, kind, text)}
            case Failed(member=member):
                expired = RemovalReason.SESSION_EXPIRED
                gone = {member.member_id: _Gone(line.at_ms, expired, None)}
            case NotJoined(member_ids=ids):
                late = RemovalReason.REBALANCE_TIMEOUT
                gone = {member_id: _Gone(line.at_ms, late, None) for member_id in ids}
            case _:
                gone = {}
        for member_id, departed in gone.items():
            self._gone.setdefault(member_id, []).append(departed)
        return list(gone)

    def drop(self, key: _Key) -> bool:
        """Forget the oldest line with this key; return whether no lines are left."""
        table: dict[Any, list[Any]] = self._began if isinstance(key, int) else self._gone
        del table[key][0]
        if not table[key]:
            del table[key]
        return not self._began and not self._gone

    def fate(self, member_id: str, concluded: Fate, times: Times) -> Fate:
        """Return why and when a member left, from the log; `concluded` if no line names it."""
        gone = _sole(self._gone.get(member_id), times)
        if gone is None:
            return concluded
        self.is_used = True
        evidence = (*concluded.evidence, Evidence(_LINE, 0))
        if gone.reason is RemovalReason.LEFT and gone.text is None and concluded.is_poll_timeout:
            # librdkafka and aiokafka state no reason when they leave because of the poll timeout.
            return Fate(
                gone.reason, Certainty.LIKELY, gone.at_ms, (), evidence, POLL_TIMEOUT, gone.text
            )
        return Fate(gone.reason, Certainty.CERTAIN, gone.at_ms, (), evidence, text=gone.text)

    def origin(
        self, old: GroupRecord, new: GroupRecord, generation: int, times: Times
    ) -> Cause | None:
        """Return the logged cause of the rebalance that followed `generation`; None if no line has
        it.
        """
        began = _sole(self._began.get(generation), times)
        if began is None:
            return None
        self.is_used = True
        logged = began.cause
        trigger = Trigger(
            _KINDS[logged.kind],
            _member(logged, old, new),
            was_leader=logged.member_id is not None and logged.member_id == old.leader_id,
            reason=state_reason(0, logged.text),
            removed=logged.removed,
            evidence=(Evidence(_LINE, max(times.before_ms - began.at_ms, 0)),),
        )
        return Cause(trigger, began.at_ms, is_known=True, stays_certain=True)


def _member(logged: LoggedCause, old: GroupRecord, new: GroupRecord) -> MemberRef | None:
    if logged.member_id is None:
        return None
    for member in (*new.members, *old.members):
        if member.member_id == logged.member_id:
            return ref(member)
    return MemberRef(logged.member_id, logged.instance_id, "", "")


def begun_by(logged: Cause, order: Sequence[Cause]) -> tuple[Cause, ...]:
    """Return the logged cause, then the others of `order`, which were derived from stored records.
    Omit last resorts (unknown cause, unclear rejoin): the logged cause explains the rebalance.
    """
    trigger = logged.trigger
    same = next((cause for cause in order if _is_same(cause.trigger, trigger)), None)
    if same is not None:
        concluded = same.trigger
        is_timeout = concluded.detail == POLL_TIMEOUT
        evidence = [fact for fact in concluded.evidence if fact.kind != _LINE]
        trigger = concluded._replace(
            kind=trigger.kind,
            member=trigger.member,
            was_leader=trigger.was_leader,
            reason=trigger.reason if trigger.reason.text is not None else concluded.reason,
            certainty=Certainty.LIKELY if is_timeout else Certainty.CERTAIN,
            candidates=(),
            evidence=(*evidence, *trigger.evidence),
        )
    rest = [cause for cause in order if cause is not same and not _is_last_resort(cause)]
    return (Cause(trigger, logged.at_ms, is_known=True), *rest)


def _is_same(concluded: Trigger, logged: Trigger) -> bool:
    both_rejoin = concluded.kind in _REJOINS and logged.kind in _REJOINS
    if concluded.member is None or logged.member is None:
        return both_rejoin or concluded.kind is logged.kind
    if concluded.member.member_id == logged.member.member_id:
        return True
    # Ids may differ: the member of a concluded rejoin is a guess, unless its topics changed.
    return both_rejoin and not concluded.detail


def _is_last_resort(cause: Cause) -> bool:
    kind = cause.trigger.kind
    is_unclear = cause.trigger.certainty is Certainty.UNCLEAR
    return kind is TriggerKind.UNKNOWN or (kind in _REJOINS and is_unclear)


NO_LINES: Final = GroupLog()
"""The log of a group without lines."""


class Logs:
    """The log lines about all groups; the oldest are forgotten beyond `LINES_KEPT`."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupLog] = {}
        self._order: deque[tuple[str, _Key]] = deque()

    def add(self, line: Line) -> None:
        group = line.fact.group
        log = self._groups.setdefault(group, GroupLog())
        self._order.extend((group, key) for key in log.add(line))
        while len(self._order) > LINES_KEPT:
            oldest, key = self._order.popleft()
            if self._groups[oldest].drop(key):
                del self._groups[oldest]

    def of(self, group: str) -> GroupLog:
        return self._groups.get(group, NO_LINES)
