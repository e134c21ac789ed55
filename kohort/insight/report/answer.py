"""Summarizes why a group rebalanced and what to change."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from statistics import median
from typing import Final

from kohort.formats.text import counted
from kohort.insight.advisor.setting import Setting
from kohort.insight.report.contents import GroupPage, Row
from kohort.insight.report.text import clock, doubts, duration, family, name, percent

CAUSES_FIRST: Final = 3
MEMBERS_FIRST: Final = 3
WHO_FIRST: Final = 3
NEWEST_FIRST: Final = 3
HOUR_MS: Final = 3_600_000
_NOT_RARE: Final = frozenset({"start", "unknown"})
WAITED_LEAST: Final = 0.02
"""A member is listed if rebalances waited for it longer, in total, than this share of the longest
such wait, or if it missed a rebalance."""


@dataclass(frozen=True, slots=True)
class Cause:
    """All acts of one kind: deployments, crashes, ...; an act may cause several rebalances."""

    kind: str
    times: int
    rebalances: int
    stopped_ms: int
    share: str
    """Share of the group's stopped time."""
    who: str
    """Affected processes, with how often each was affected if that differs; empty if unknown."""
    last_ms: int | None
    avoided: int
    doubt: str = ""
    """How many rebalances have an uncertain cause; empty if none."""


@dataclass(frozen=True, slots=True)
class FirstScreen:
    causes: Sequence[Cause]
    """The most expensive causes, and the rarest cause at the end if it is not among these."""
    rarest: Cause | None
    """The cause that occurred least often; None if it is also the most expensive one."""
    newest: Sequence[Row]
    """Acts (deployments, crashes, ...) of the history's last hour, newest first; at least one."""
    late: Row | None
    """The result of `late_returns`: how often and how late static members returned."""
    waited: Sequence[Row]
    """Rows of `slow_members`, the longest waits first."""
    others_join_ms: int | None
    """The usual join delay of the members other than the slowest."""
    also: Sequence[str]
    """Sentences on other findings."""
    recorded: Row | None
    """The row of the advice for the recorded settings; None without advice."""
    choices: Sequence[Row]
    """Settings worth considering, those with the fastest crash detection first."""
    best: Row | None
    assignor: str | None
    quicker: Row | None
    """The predicted result if the slowest member were as quick as the others."""
    both: Row | None
    """The predicted result under the best setting if the slowest member were as quick as the
    others."""


def answer(page: GroupPage) -> FirstScreen:
    recorded = next((row for row in page.advice if row["is_recorded"]), None)
    causes = [_cause(page, row) for row in page.causes]
    costly = [cause for cause in causes if cause.rebalances][:CAUSES_FIRST]
    rare = [cause for cause in causes if cause.kind not in _NOT_RARE]
    # Of equally rare causes, prefer failures, and not the most expensive one: it is shown anyway.
    rare.sort(key=lambda cause: (cause.times, cause in costly[:1], family(cause.kind) != "lost"))
    rarest = rare[0] if rare and rare[0] not in costly[:1] else None
    choices = numbered(page.advice)
    best = next((row for row in choices if row["is_best"]), None)
    waited = list(_waited(page))
    return FirstScreen(
        causes=costly if rarest is None or rarest in costly else [*costly, rarest],
        rarest=rarest,
        newest=_newest(page.acts.rows),
        late=page.late,
        waited=waited[:MEMBERS_FIRST],
        others_join_ms=_others(page, {row["process"] for row in waited[:1]}),
        also=list(_also(page)),
        recorded=recorded,
        choices=choices,
        best=best,
        assignor=page.assignor,
        quicker=_quicker(page, recorded),
        both=_quicker(page, best),
    )


def _quicker(page: GroupPage, setting: Row | None) -> Row | None:
    """Return a setting's predicted result if the slowest member were as quick as the others."""
    if setting is None:
        return None
    rows = (row for row in page.advice if row.get("quicker_member") and row["is_on_front"])
    return next((row for row in rows if setting_of(row) == setting_of(setting)), None)


def setting_of(row: Row) -> Setting:
    names = [field.name for field in fields(Setting)]
    # Null is a value of `static`; otherwise the setting is newer than the row, and at its default.
    present = [name for name in names if row.get(name) is not None or name == "static"]
    return replace(Setting(), **{name: row[name] for name in present})


def numbered(rows: Sequence[Row]) -> list[Row]:
    """Return the settings worth considering, those with the fastest crash detection first."""
    chosen = [
        row
        for row in rows
        if row["is_on_front"] and not row["is_recorded"] and not row.get("quicker_member")
    ]
    return sorted(chosen, key=lambda row: (row["notice_ms"], row["ordinal"]))


def _cause(page: GroupPage, row: Row) -> Cause:
    # Add up the acts: the total in the row of `groups` may cover more time than they do.
    stopped_ms = sum(int(row["stopped_total_ms"]) for row in page.causes)
    return Cause(
        row["kind"],
        row["act_count"],
        row["rebalance_count"],
        row["stopped_total_ms"],
        percent(row["stopped_total_ms"], stopped_ms),
        _who(row),
        row["last_at_ms"],
        row["avoided_count"],
        doubts(row),
    )


def who(names: Sequence[str], count: int) -> str:
    """Name the first of `count` processes: ``a, b, c and 3 others``."""
    first = [name(value) for value in names[:WHO_FIRST]]
    left = count - len(first)
    return ", ".join(first) + (f" and {counted(left, 'other')}" if left > 0 else "")


def _who(row: Row) -> str:
    counts = row["process_counts"]
    if len({count for _, count in counts}) == 1:
        return who([process for process, _ in counts], len(counts))
    return who([f"{process} ({count:,})" for process, count in counts], len(counts))


def _newest(acts: Sequence[Row]) -> Sequence[Row]:
    # Acts are sorted by their start: the newest act may end before an older one.
    since_ms = max((act["ended_at_ms"] for act in acts), default=0) - HOUR_MS
    return [act for place, act in enumerate(acts) if not place or act["ended_at_ms"] >= since_ms]


def _waited(page: GroupPage) -> Iterator[Row]:
    longest = max((row["waited_for_total_ms"] for row in page.slow_members.rows), default=0)
    for row in page.slow_members.rows:
        if row["waited_for_total_ms"] > WAITED_LEAST * longest or row["missed_count"]:
            yield row


def _others(page: GroupPage, slowest: set[str]) -> int | None:
    known = [
        row["join_delay_p50_ms"]
        for row in page.slow_members.rows
        if row["join_count"] and row["process"] not in slowest
    ]
    return round(median(known)) if known else None


def _also(page: GroupPage) -> Iterator[str]:
    busiest = page.busiest
    if busiest is not None and busiest["duration_ms"]:
        yield (
            f"Busiest period: {counted(busiest['rebalance_count'], 'rebalance')} in "
            f"{duration(busiest['duration_ms'])} from {clock(busiest['started_at_ms'])}."
        )
    if page.needless.total:
        stopped_ms = sum(row["stopped_total_ms"] or 0 for row in page.needless.rows)
        least = "at least " if page.needless.left_out else ""
        stopped = f", and stopped members for {least}{duration(stopped_ms)}" if stopped_ms else ""
        yield f"{counted(page.needless.total, 'rebalance')} moved no partition{stopped}."
    expired = [row for row in page.heartbeat_gaps.rows if row["expired_count"]]
    if expired:
        most = max(expired, key=lambda row: row["expired_count"])
        count = sum(row["expired_count"] for row in expired)
        which = f", {most['expired_count']:,} of them of" if len(expired) > 1 else " of"
        timeout_ms = most["expired_timeout_ms"]
        silent = "" if timeout_ms is None else f", after {duration(timeout_ms)} of silence"
        yield f"{counted(count, 'session')} expired{which} {name(most['process'])}{silent}."
    ended = [row for row in page.unavailability.rows if row["longest_ms"]]
    if ended:
        row = max(ended, key=lambda other: other["longest_ms"])
        partition, longest = f"{name(row['topic'])}-{row['partition']}", duration(row["longest_ms"])
        yield f"{partition} had no reader for {longest}, longer than any other partition."
    if page.flapping.rows:
        row = page.flapping.rows[0]
        yield (
            f"{counted(page.flapping.total, 'partition')} changed owners often: "
            f"{name(row['topic'])}-{row['partition']} {row['moves']:,} times, "
            f"{row['moves_in_window']:,} of them in quick succession."
        )
    if page.figures.get("missing_count"):
        missing = counted(page.figures["missing_count"], "event")
        yield f"{missing} of the history are missing: figures are too low."
