"""Converts history events (their JSON) to rows of the history tables, without Spark or Arrow.

A row maps column names to values. Fields missing from the event are None; times are milliseconds
since 1970. A column with the same name as an event field copies that field, so only the other
columns are listed here.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from kohort.groups.history.names import AVOIDED, REBALANCE, RebalanceOutcome

Event: TypeAlias = Mapping[str, Any]
Row: TypeAlias = dict[str, Any]

ENFORCED: Final = "ENFORCED"
"""The JoinReason of Consumer.enforceRebalance."""

MOMENT_MAX_MS: Final = 253_402_300_799_999
"""The end of the year 9999, the latest time that the tables can store."""

WHOLE_MAX: Final = 2**63 - 1

_NOTHING: Final[Event] = {}
_BOUNDS: Final = 2
_COUNTED: Final = ("kept", "moved", "gained", "given_up")


def is_running(event: Event) -> bool:
    """Whether the event reports a rebalance in progress; a later event has its complete record."""
    return event.get("kind") == REBALANCE and event.get("outcome") == RebalanceOutcome.RUNNING


def has_row(event: Event) -> bool:
    """Whether the event is complete, and of a kind that the tables store. They do not store
    assignments of share groups, because no member pauses for them.
    """
    return event.get("kind") in {REBALANCE, AVOIDED} and not is_running(event)


def begun_ms(event: Event) -> int | None:
    """Return the time at which the rebalance began, or at which it was avoided."""
    name = "started_at_ms" if event.get("kind") == REBALANCE else "at_ms"
    began_ms: int | None = event.get(name)
    return began_ms


def rebalance(event: Event) -> Row:
    """Return the row of the table `rebalances`, without the source columns."""
    started_at = moment(event.get("started_at_ms"))
    timeline = event.get("timeline") or _NOTHING
    waited = event.get("waited_for") or _NOTHING
    stopped = event.get("stopped") or _NOTHING
    unread = event.get("unread") or _NOTHING
    moved = event.get("partitions") or _NOTHING
    assigned_ms = timeline.get("assigned_ms")
    earliest_ms, latest_ms = _bounds(event)
    joined_ms, synced_ms = timeline.get("join_phase_ms"), timeline.get("leader_synced_ms")
    return {
        **event,
        **_trigger(event),
        "started_at": started_at,
        "ended_at": later(started_at, timeline.get("finished_ms")),
        "extension_count": _size(timeline.get("extensions_ms")),
        "stall_count": _size(timeline.get("stalled_ms")),
        "join_phase_ms": joined_ms,
        "join_phase_end": timeline.get("join_phase_end"),
        "assignment_ms": _lasted_ms(joined_ms, synced_ms),
        "assigned_ms": assigned_ms,
        "assigned_by": timeline.get("assigned_by"),
        "store_ms": _lasted_ms(
            synced_ms if assigned_ms is None else assigned_ms, timeline.get("durable_ms")
        ),
        "duration_ms": timeline.get("finished_ms"),
        "waited_phase": waited.get("phase"),
        "waited_ms": waited.get("ms"),
        "waited_member_ids": waited.get("member_ids"),
        "waited_pending_ids": waited.get("pending_ids"),
        "partitions_known": bool(moved.get("known")),
        **{f"partitions_{name}": _known(moved, name) for name in _COUNTED},
        "stopped_member_count": stopped.get("member_count"),
        "stopped_longest_ms": stopped.get("longest_ms"),
        "stopped_total_ms": stopped.get("total_ms"),
        "unread_partition_count": unread.get("partition_count"),
        "unread_longest_ms": unread.get("longest_ms"),
        "stopped_open_count": stopped.get("open_count"),
        "needless": _needless(event, moved),
        **_observed(event),
        "started_earliest": moment(earliest_ms),
        "started_latest": moment(latest_ms),
    }


def members(event: Event) -> Iterator[Row]:
    started_at = moment(event.get("started_at_ms"))
    for ordinal, member in enumerate(event.get("members") or ()):
        yield _member(member or _NOTHING) | {
            "group": event["group"],
            "sequence": event["sequence"],
            "ordinal": ordinal,
            "started_at": started_at,
        }


def avoided(event: Event) -> Row:
    """Return the row of the table `avoided`, without the source columns."""
    at = moment(event.get("at_ms"))
    return {**event, **_trigger(event), **_observed(event), "at": at}


def running(event: Event) -> Row:
    """Return the row of the table `running`, without the source columns."""
    return {**event, **_trigger(event), "started_at": moment(event.get("started_at_ms"))}


def moment(ms: int | None) -> int | None:
    """Return `ms`, or None if it is outside the years 1970 to 9999."""
    return ms if ms is not None and 0 <= ms <= MOMENT_MAX_MS else None


def later(start: int | None, ms: int | None) -> int | None:
    """Return the time `ms` after `start`; None if either is missing, or the sum is out of range."""
    return None if start is None or ms is None else moment(start + ms)


def _trigger(event: Event) -> Row:
    trigger = event.get("trigger") or _NOTHING
    row = {f"trigger_{name}": value for name, value in trigger.items()}
    return row | {"trigger_at": moment(trigger.get("at_ms"))}


def _observed(event: Event) -> Row:
    observed = event.get("observed") or _NOTHING
    return {f"observed_{name}": observed.get(name) for name in ("by", "partition", "offset")}


def _bounds(event: Event) -> tuple[int | None, int | None]:
    """Return the earliest and latest start; both None unless a watcher estimated the start."""
    between: Sequence[int] = event.get("started_between_ms") or ()
    return (between[0], between[1]) if len(between) == _BOUNDS else (None, None)


def _member(member: Event) -> Row:
    partitions = member.get("partitions") or _NOTHING
    owner = member.get("instance_id")
    return {
        **member,
        "owner": member.get("member_id") if owner is None else owner,
        "join_delay_ms": _lasted_ms(member.get("told_ms"), member.get("join_received_ms")),
        "partitions_known": bool(partitions.get("known")),
        "partitions_kept": _known(partitions, "kept"),
        "partitions_given_up": _known(partitions, "given_up_count"),
        "partitions_gained": _known(partitions, "gained_count"),
        "given_up": _known(partitions, "given_up"),
        "gained": _known(partitions, "gained"),
    }


def _size(values: list[Any] | None) -> int | None:
    return None if values is None else len(values)


def _lasted_ms(start: int | None, end: int | None) -> int | None:
    if start is None or end is None:
        return None
    return end - start if -WHOLE_MAX <= end - start <= WHOLE_MAX else None


def _known(partitions: Event, name: str) -> Any:  # noqa: ANN401 - a number or names.
    return partitions.get(name) if partitions.get("known") else None


def _needless(event: Event, moved: Event) -> bool | None:
    outcome = event.get("outcome")
    if outcome == "empty":
        return False
    if outcome != "stable" or not moved.get("known"):
        return None
    if (event.get("trigger") or _NOTHING).get("reason") == ENFORCED:
        return False
    before = event.get("members_before")
    gained, given_up = moved.get("gained"), moved.get("given_up")
    if (before is not None and before <= 0) or gained or given_up:
        return False
    return None if None in (before, gained, given_up) else True
