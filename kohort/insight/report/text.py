"""Formats durations, times, causes and shares for the page."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from kohort.formats.text import shown
from kohort.insight.output import counted
from kohort.insight.report.markup import NBSP

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
NAME_CHARS_MAX: Final = 60
NOTHING: Final = "-"

CAUSES: Final = {
    "member_added": "A member joined",
    "static_added": "A static member joined",
    "static_replaced": "A static member came back",
    "member_left": "A member left",
    "removed_by_admin": "An administrator removed a member",
    "session_expired": "A session expired",
    "new_member_expired": "A new member did not join in time",
    "sync_expired": "A member did not fetch its assignment",
    "leader_rejoined": "The leader joined again",
    "follower_rejoined": "A follower joined again",
    "protocols_changed": "A member changed its subscription or assignors",
    "forced_by_reason": "A member forced a rebalance",
    "store_failed": "The assignment could not be stored",
    "over_capacity": "The group was too large",
    "size_refused": "A member was rejected",
    "subscription_changed": "A member changed its subscription",
    "regex_resolved": "A regular expression matched other topics",
    "assignor_changed": "Members preferred another assignor",
    "topics_changed": "Topics changed",
    "rebalance_expired": "A member did not give up partitions in time",
    "join_expired": "A classic member did not join again in time",
    "upgraded": "The group became a consumer group",
    "downgraded": "The group became a classic group",
}
FAMILIES: Final = {
    "member_added": "came",
    "static_added": "came",
    "static_replaced": "came",
    "member_left": "left",
    "removed_by_admin": "left",
    "session_expired": "lost",
    "new_member_expired": "lost",
    "sync_expired": "lost",
    "leader_rejoined": "again",
    "follower_rejoined": "again",
    "protocols_changed": "again",
    "forced_by_reason": "again",
    "subscription_changed": "again",
    "rebalance_expired": "lost",
    "join_expired": "lost",
}
"""Causes that share a colour; the text beside it names the cause."""
STARTED_BY: Final = {
    "deploy": ("deploy", "in which members left and came back"),
    "member": ("burst", "mostly caused by one client"),
    "scale_out": ("burst", "in which members only joined"),
    "scale_in": ("burst", "in which members only left"),
    "several": ("burst", "of several causes"),
}
"""Names of storms by their origin, with a description."""


def cause(kind: str) -> str:
    """Return the text of a cause; unknown causes are shown with spaces for underscores."""
    return CAUSES.get(kind, kind.replace("_", " "))


def doubts(row: Mapping[str, Any]) -> str:
    """Return how many rebalances of a row of `causes` may have another one: 3 likely, 1 unclear."""
    counts = ((row.get(f"{certainty}_count"), certainty) for certainty in ("likely", "unclear"))
    return ", ".join(f"{count:,} {certainty}" for count, certainty in counts if count)


def storms_of(started_by: str, count: int) -> str:
    """Return the number and kind of storms: ``10 deploys, in which members left and came back``."""
    noun, meaning = STARTED_BY.get(started_by, ("burst", f"started by {started_by}"))
    return f"{'a ' + noun if count == 1 else counted(count, noun)}, {meaning}"


def family(kind: str) -> str:
    return FAMILIES.get(kind, "other")


def duration(ms: int | None) -> str:
    """Format a duration: 850 ms, 3.2 s, 45 s, 5 min, 2 h 5 min, 3 d 4 h; with no-break spaces."""
    return NOTHING if ms is None else _duration(ms).replace(" ", NBSP)


def _duration(ms: int) -> str:
    if ms == 0:
        return "0 s"
    if ms < SECOND_MS:
        return f"{ms} ms"
    if ms < 10 * SECOND_MS:
        return f"{ms / SECOND_MS:.1f}".removesuffix(".0") + " s"
    if ms < 2 * MINUTE_MS:
        return f"{ms / SECOND_MS:.0f} s"
    for large_ms, small_ms, large, small in (
        (DAY_MS, HOUR_MS, "d", "h"),
        (HOUR_MS, MINUTE_MS, "h", "min"),
    ):
        if ms >= large_ms:
            whole, rest_ms = divmod(round(ms / small_ms) * small_ms, large_ms)
            rest = rest_ms // small_ms
            return f"{whole} {large} {rest} {small}" if rest else f"{whole} {large}"
    return f"{ms / MINUTE_MS:.0f} min"


def seconds(ms: int | None) -> str:
    """Format a duration in seconds, so that a column can be compared: 6,500 or 2.4."""
    if ms is None:
        return NOTHING
    value = ms / SECOND_MS
    if 0 < value < 0.05:
        return "< 0.1"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def percent(part: int, whole: int) -> str:
    """Format a share in whole percent."""
    if not whole:
        return NOTHING
    share = 100 * part / whole
    return ("< 1 %" if 0 < share < 1 else f"{share:.0f} %").replace(" ", NBSP)


def name(value: str | None) -> str:
    """Return a group's or member's name with unprintable characters escaped; long names are
    shortened in the middle, because their ends distinguish them.
    """
    if value is None:
        return NOTHING
    value = shown(value)
    if len(value) <= NAME_CHARS_MAX:
        return value
    half = NAME_CHARS_MAX // 2
    return f"{value[:half]}…{value[-half:]}"


def moment(ms: int) -> str:
    """Format a date and time: Mon 5 Jan 2026, 10:00:01."""
    at = _utc(ms)
    return f"{at:%a} {at.day} {at:%b %Y, %H:%M:%S}"


def clock(ms: int) -> str:
    """Format a time without the year, which the page states once: Mon 5 Jan 10:00:01."""
    at = _utc(ms)
    return f"{at:%a} {at.day} {at:%b %H:%M:%S}"


def period(first_ms: int, last_ms: int) -> str:
    """Format a period: Mon 5 Jan 2026, 10:00:01 to 10:04:30."""
    first, last = _utc(first_ms), _utc(last_ms)
    if first.date() != last.date():
        return f"{moment(first_ms)} to {moment(last_ms)}"
    until = f" to {last:%H:%M:%S}" if f"{first:%H:%M:%S}" != f"{last:%H:%M:%S}" else ""
    return f"{moment(first_ms)}{until}"


def days(first_ms: int, last_ms: int) -> str:
    """Format a range of days, 5 Jan to 11 Jan 2026; within one day with the time."""
    first, last = _utc(first_ms), _utc(last_ms)
    if first.date() == last.date():
        return f"{period(first_ms, last_ms)} UTC"
    year = "" if first.year == last.year else f" {first.year}"
    return f"{first.day} {first:%b}{year} to {last.day} {last:%b %Y}"


def _utc(ms: int) -> datetime:
    # A history may contain any number; a date must not be later than the year 9999.
    return datetime.fromtimestamp(min(max(ms, 0), 253_402_300_799_000) / SECOND_MS, UTC)
