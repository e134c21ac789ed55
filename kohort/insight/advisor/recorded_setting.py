"""Reads from a group's history records which settings were in force."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from statistics import median
from typing import Any, Final

from kohort.insight.advisor.heartbeat_times import HEARTBEATS_MOST, late_by
from kohort.insight.advisor.member_lifetimes import Json, causes_of
from kohort.insight.advisor.setting import CONSUMER_DEFAULTS, Setting

NOTICES_NEEDED: Final = 5
"""Number of notifications needed to estimate the heartbeat interval from the longest delay."""
FIT_MOST: Final = 0.05
"""The times between a member's heartbeats fit an interval if their median distance from its
multiples is less than this share of the interval."""
_CONFIG_NAMES: Final = {
    "session_timeout_ms": "session.timeout.ms",
    "heartbeat_interval_ms": "heartbeat.interval.ms",
    "rebalance_timeout_ms": "max.poll.interval.ms",
    "initial_rebalance_delay_ms": "group.initial.rebalance.delay.ms",
}


def settings_seen(rebalances: list[Json]) -> dict[str, int | None]:
    """Return the durations in the recorded setting, by field; None for one that the history does
    not show.
    """
    return {
        "session_timeout_ms": _session_ms(rebalances),
        "heartbeat_interval_ms": _interval_ms(rebalances),
        "rebalance_timeout_ms": _rebalance_timeout_ms(rebalances),
        "initial_rebalance_delay_ms": _initial_delay_ms(rebalances),
    }


def recorded_setting(
    rebalances: list[Json],
    durations: Mapping[str, int | None],
    known: dict[str, Any],
    notes: list[str],
) -> Setting:
    """Return the setting shown by the history; assumed values are added to `notes`."""
    seen: dict[str, Any] = dict(durations)
    seen["consumer"] = rebalances[-1].get("group_type") == "consumer"
    default = CONSUMER_DEFAULTS if seen["consumer"] else Setting()
    for name, value in durations.items():
        is_used = not (seen["consumer"] and name == "initial_rebalance_delay_ms")
        if value is None and name not in known and is_used:
            assumed = f"{getattr(default, name) / 1000:g} s"
            notes.append(f"{_CONFIG_NAMES[name]} is not in the history; assumed to be {assumed}")
    instances = {
        bool(member.get("instance_id"))
        for record in rebalances
        for member in (*(record.get("members") or ()), *causes_of(record))
        if member.get("member_id")
    }
    seen["static"] = instances == {True} if len(instances) == 1 else (None if instances else False)
    modes = modes_seen(rebalances)
    protocols = {record.get("protocol") for record in rebalances}
    seen["cooperative"] = "cooperative" in modes or any("cooperative" in str(p) for p in protocols)
    if not modes:
        notes.append("whether members were eager or cooperative is not in the history")
    seen["states_reasons"] = any(
        cause.get("reason_source") == "tag" for record in rebalances for cause in causes_of(record)
    )
    chosen = {name: value for name, value in seen.items() if name == "static" or value is not None}
    return replace(default, **(chosen | known))


def _session_ms(rebalances: list[Json]) -> int | None:
    seen = Counter(
        cause["session_timeout_ms"]
        for record in rebalances
        for cause in causes_of(record)
        if cause.get("session_timeout_ms")
    ) or _requested(rebalances, "session_timeout_ms")
    return int(seen.most_common(1)[0][0]) if seen else None


def _interval_ms(rebalances: list[Json]) -> int | None:
    """Return the heartbeat interval. Members are notified by their next heartbeat, so the longest
    delay of a notification is at most the interval, and close to it. The time between two
    heartbeats of a member is a multiple of the interval.
    """
    notice_ms, since_ms = [], []
    heartbeats: dict[str, list[int]] = {}
    for record in rebalances:
        begin_ms = record.get("started_at_ms") or 0
        members = record.get("members") or ()
        # Notified by its own return, which may be much later than the next heartbeat.
        returned = {member.get("replaced_by") for member in members}
        for member in members:
            told_ms, member_id = member.get("told_ms"), str(member.get("member_id"))
            if told_ms is not None and member.get("fate") == "kept" and member_id not in returned:
                notice_ms.append(told_ms - ((record.get("timeline") or {}).get("assigned_ms") or 0))
                before = heartbeats.get(member_id, ())
                since_ms.append([begin_ms + told_ms - at_ms for at_ms in before])
            heartbeats[member_id] = [
                begin_ms + at_ms
                for at_ms in (told_ms, member.get("join_answered_ms"))
                if at_ms is not None
            ]
    if len(notice_ms) < NOTICES_NEEDED:
        return None
    notice_ms.sort()
    usual = int(notice_ms[int(len(notice_ms) * 0.95)])
    # Configured intervals are usually whole or half seconds.
    least_ms = max(int(usual / 500 + 0.7) * 500, 500)
    known = [values for values in since_ms if values and max(values) <= HEARTBEATS_MOST * least_ms]
    if len(known) < NOTICES_NEEDED:
        return least_ms
    fits = {
        interval_ms: median(
            min(late_by(value, interval_ms) for value in values) / interval_ms for values in known
        )
        for interval_ms in range(least_ms, 2 * least_ms, 500)
    }
    best_ms = min(fits, key=lambda interval_ms: fits[interval_ms])
    return best_ms if fits[best_ms] < FIT_MOST < fits[least_ms] / 2 else least_ms


def _rebalance_timeout_ms(rebalances: list[Json]) -> int | None:
    for record in rebalances:
        timeline = record.get("timeline") or {}
        stalled = timeline.get("stalled_ms")
        took = timeline.get("join_phase_ms")
        if timeline.get("join_phase_end") == "timeout" and took is not None and not stalled:
            return _round(int(took))
        for cause in causes_of(record):
            if cause.get("rebalance_timeout_ms"):
                return int(cause["rebalance_timeout_ms"])
    # The group waits for the largest timeout of any member.
    return max(_requested(rebalances, "rebalance_timeout_ms"), default=None)


def _requested(rebalances: list[Json], name: str) -> Counter[int]:
    return Counter(
        member[name]
        for record in rebalances
        for member in record.get("members") or ()
        if member.get(name)
    )


def _initial_delay_ms(rebalances: list[Json]) -> int | None:
    for record in rebalances:
        timeline = record.get("timeline") or {}
        took = timeline.get("join_phase_ms")
        # Skip a watcher's records: they do not show how often the delay was extended.
        if record.get("initial") and took is not None and not record.get("observed"):
            return _round(int(took) // (len(timeline.get("extensions_ms") or ()) + 1))
    return None


def _round(value: int) -> int:
    """Round to 100 ms if a multiple is at most 30 ms away, because timers are slightly late."""
    nearest = round(value / 100) * 100
    return nearest if abs(value - nearest) <= 30 else value


def modes_seen(rebalances: list[Json]) -> set[Any]:
    modes = {m.get("mode") for record in rebalances for m in record.get("members") or ()}
    return modes - {None}
