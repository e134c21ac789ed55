"""Formats durations, times, causes and shares for the page."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from kohort.formats.text import shown
from kohort.insight.report.markup import NBSP

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
_DIGITS_BELOW: Final = 10
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
    "instance_fenced": "Two processes used one static id",
    "protocol_refused": "A client without a common assignor was refused",
    "member_refused": "A client was refused",
}
ACTS: Final = {
    "deploy": ("Deploy", "again"),
    "restart": ("Restart", "again"),
    "slow_restart": ("Slow restart or crash", "lost"),
    "crash": ("Crash", "lost"),
    "crash_or_pause": ("Crash or pause", "lost"),
    "pause": ("Pause", "lost"),
    "static_gone": ("Static member gone", "left"),
    "start": ("Group started", "came"),
    "scale_out": ("Scaled out", "came"),
    "scale_in": ("Scaled in", "left"),
    "removed": ("Removed by an administrator", "left"),
    "too_slow": ("Too slow for the rebalance timeout", "lost"),
    "never_joined": ("New member did not join in time", "lost"),
    "topic_change": ("Topics changed", "other"),
    "subscription_change": ("Subscription or assignors changed", "other"),
    "enforced": ("Enforced rebalance", "other"),
    "rejoined": ("Joined again, reason unknown", "other"),
    "broker_restart": ("Broker restarted", "other"),
    "unknown": ("Cause unknown", "other"),
}
"""Text and family of each kind of act, such as a crash; kinds of one family share a colour."""


def cause(kind: str) -> str:
    """Return the text of a cause; unknown causes are shown with spaces for underscores."""
    return CAUSES.get(kind, kind.replace("_", " "))


def doubts(row: Mapping[str, Any]) -> str:
    """Return how many rebalances have an uncertain cause, such as "3 likely, 1 unclear"."""
    counts = ((row.get(f"{certainty}_count"), certainty) for certainty in ("likely", "unclear"))
    return ", ".join(f"{count:,} {certainty}" for count, certainty in counts if count)


def act(kind: str) -> str:
    """Return the text for a kind of act, such as a crash; for an unknown kind, that of `cause`."""
    return ACTS[kind][0] if kind in ACTS else cause(kind)


def family(kind: str) -> str:
    return ACTS[kind][1] if kind in ACTS else "other"


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
    """Format seconds so that a column's values are comparable, such as ``6,500`` and ``2.4``."""
    if ms is None:
        return NOTHING
    value = ms / SECOND_MS
    if 0 < value < 0.05:
        return "< 0.1"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


class Unit(NamedTuple):
    """The unit of a column, so that its values can be compared."""

    name: str
    ms: int

    def text(self, ms: int | None, spread_ms: int = 0) -> str:
        """Format a duration, ``9 min``, or with a spread in the same precision, ``9 ± 1 min``."""
        if ms is None:
            return NOTHING
        value = ms / self.ms
        digits = 1 if 0 < value < _DIGITS_BELOW and self.ms > 1 else 0
        least = 10**-digits
        text = f"{value:,.{digits}f}"
        if spread_ms:
            text += f" ± {max(spread_ms / self.ms, least):,.{digits}f}"
        elif 0 < value < least / 2:
            text = f"< {least:g}"
        return f"{text} {self.name}".replace(" ", NBSP)


def unit_of(values_ms: Iterable[int | None]) -> Unit:
    """Return the unit for the largest of the values."""
    largest_ms = max((ms for ms in values_ms if ms is not None), default=0)
    if 0 < largest_ms < SECOND_MS:
        return Unit("ms", 1)
    if largest_ms < 10 * MINUTE_MS:
        return Unit("s", SECOND_MS)
    return Unit("min", MINUTE_MS) if largest_ms < 10 * HOUR_MS else Unit("h", HOUR_MS)


def column(values_ms: Iterable[int | None]) -> list[str]:
    """Format the durations of a column in one unit."""
    values = list(values_ms)
    unit = unit_of(values)
    return [unit.text(ms) for ms in values]


def percent(part: int, whole: int) -> str:
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


def minute(ms: int) -> str:
    """Format a time without the year and the seconds: Mon 5 Jan 10:00."""
    return clock(ms)[:-3]


def period(first_ms: int, last_ms: int) -> str:
    """Format a period: Mon 5 Jan 2026, 10:00:01 to 10:04:30."""
    first, last = _utc(first_ms), _utc(last_ms)
    if first.date() != last.date():
        return f"{moment(first_ms)} to {moment(last_ms)}"
    until = f" to {last:%H:%M:%S}" if f"{first:%H:%M:%S}" != f"{last:%H:%M:%S}" else ""
    return f"{moment(first_ms)}{until}"


def days(first_ms: int, last_ms: int) -> str:
    """Format a range of days: 5 Jan to 11 Jan 2026; a range within one day as `period` does."""
    first, last = _utc(first_ms), _utc(last_ms)
    if first.date() == last.date():
        return f"{period(first_ms, last_ms)} UTC"
    year = "" if first.year == last.year else f" {first.year}"
    return f"{first.day} {first:%b}{year} to {last.day} {last:%b %Y}"


def _utc(ms: int) -> datetime:
    # A history may contain any number; a date must not be later than the year 9999.
    return datetime.fromtimestamp(min(max(ms, 0), 253_402_300_799_000) / SECOND_MS, UTC)
