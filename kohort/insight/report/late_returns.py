"""Static members that return after their session has expired. The remedy is a longer session, and
the history shows its effect without a replay.
"""

from collections.abc import Sequence
from typing import Final

from kohort.insight.report.contents import Row
from kohort.insight.report.text import duration

LATE_MS: Final = 60_000
"""If a static member returns more than this after its session expired, it was down, not slow."""
LATE_LEAST: Final = 2
_SESSIONS_S: Final = (10, 15, 20, 30, 45, 60, 90, 120, 180, 300)
_SPARE: Final = 1.25


def late_returns(acts: Sequence[Row]) -> Row | None:
    """Sum up the rows of `acts` in which static members returned at most LATE_MS after their
    session had expired. None if there are fewer than LATE_LEAST such returns, or if any of these
    session timeouts is unknown, or not shorter than the longest timeout that is recommended.
    """
    late = [act for act in acts if act["late_count"] and act["late_longest_ms"] <= LATE_MS]
    count = sum(act["late_count"] for act in late)
    sessions_ms = [act["late_session_timeout_ms"] for act in late]
    if count < LATE_LEAST or None in sessions_ms or max(sessions_ms) >= _SESSIONS_S[-1] * 1_000:
        return None
    return {
        "late_count": count,
        "late_longest_ms": max(act["late_longest_ms"] for act in late),
        "late_session_timeout_ms": max(sessions_ms),
        "processes": sorted({name for act in late for name in act["processes"]}),
    }


def enough(late: Row) -> str:
    """Return a session.timeout.ms of 1.25 times the longest absence, rounded up, up to 300 s."""
    return f"session.timeout.ms={_enough_ms(late)}"


def reason(late: Row, names: str) -> str:
    """Explain why a longer session timeout avoids these rebalances, and what it costs."""
    session_ms = late["late_session_timeout_ms"]
    # The names are those of all processes of the acts, not only of the late ones.
    which = f"one of {names}" if len(late["processes"]) > 1 else names
    return (
        f"{late['late_count']:,} times a static member ({which}) was back after its session of "
        f"{duration(session_ms)} had expired, at most {duration(late['late_longest_ms'])} late. In "
        "a longer session its partitions would have waited for it, without a rebalance: the "
        "history shows this without a replay. A crash would be noticed "
        f"{duration(_enough_ms(late) - session_ms)} later."
    )


def _enough_ms(late: Row) -> int:
    needed_s = _SPARE * (late["late_session_timeout_ms"] + late["late_longest_ms"]) / 1_000
    return 1_000 * next((value for value in _SESSIONS_S if value >= needed_s), _SESSIONS_S[-1])
