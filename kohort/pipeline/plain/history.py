"""Records of the history as rows: one for each rebalance, each avoided one, each member."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kohort.pipeline.schema_version import SCHEMA_VERSION

Json: TypeAlias = dict[str, Any]
Row: TypeAlias = dict[str, Any]

GONE: Final = frozenset(
    {
        "left",
        "removed_by_admin",
        "session_expired",
        "rebalance_timeout",
        "sync_expired",
        "new_member_expired",
    }
)
"""Fates of members that are none any more, and whose process is not there either."""
_KINDS: Final = frozenset({"rebalance", "avoided"})
_TRIGGER: Final = ("kind", "member_id", "instance_id", "client_id", "host", "reason")
_MEMBER: Final = (
    "member_id",
    "instance_id",
    "client_id",
    "host",
    "told_ms",
    "join_received_ms",
    "sync_answered_ms",
    "fate",
    "fate_ms",
    "mode",
)


@dataclass(slots=True)
class History:
    """The rows of one group, each list in the order of sequences."""

    rebalances: list[Row] = field(default_factory=list)
    """Columns of the table `rebalances` that findings need; `event` is the record itself."""
    avoided: list[Row] = field(default_factory=list)
    members: list[Row] = field(default_factory=list)

    def rebalance_of(self) -> dict[int, Row]:
        """The rebalances by sequence."""
        return {row["sequence"]: row for row in self.rebalances}


def is_event(record: object) -> bool:
    """Whether it is a complete event of a history of this schema."""
    if not isinstance(record, dict) or record.get("schema") != SCHEMA_VERSION:
        return False
    kind = record.get("kind")
    if kind not in _KINDS or record.get("outcome") == "running":
        return False
    trigger = record.get("trigger")
    return (
        isinstance(record.get("group"), str)
        and isinstance(record.get("sequence"), int)
        and isinstance(record.get("started_at_ms" if kind == "rebalance" else "at_ms"), int)
        and isinstance(trigger, dict)
        and isinstance(trigger.get("kind"), str)
    )


def read_history(records: Iterable[Json]) -> History:
    """The rows of events of one group, in any order; of several with one sequence, the last wins.

    Raises:
        ValueError: a value of a record is of another type than its field.
    """
    history = History()
    by_sequence = {int(record["sequence"]): record for record in records}
    for sequence in sorted(by_sequence):
        record = by_sequence[sequence]
        try:
            if record["kind"] == "avoided":
                history.avoided.append(_avoided(record))
                continue
            history.rebalances.append(_rebalance(record))
            history.members += _members(record)
        except (TypeError, AttributeError, KeyError) as error:
            raise ValueError(f"event {sequence} is not of the schema: {error!r}") from error
    return history


def process_of(row: Row) -> str:
    """The name that a process keeps when it starts again: the instance id, else the client id."""
    return str(row.get("instance_id") or row.get("client_id") or row.get("member_id"))


def _trigger(record: Json) -> Row:
    trigger = record["trigger"]
    row = {f"trigger_{name}": trigger.get(name) for name in (*_TRIGGER, "reason_source")}
    return row | {"trigger_session_timeout_ms": trigger.get("session_timeout_ms")}


def _avoided(record: Json) -> Row:
    identity = {"group": record["group"], "sequence": record["sequence"]}
    return identity | {"at_ms": record["at_ms"], **_trigger(record), "event": record}


def _rebalance(record: Json) -> Row:
    timeline = record.get("timeline") or {}
    waited, stopped = record.get("waited_for") or {}, record.get("stopped") or {}
    started_at_ms, duration_ms = record["started_at_ms"], timeline.get("finished_ms")
    return {
        "group": record["group"],
        "sequence": record["sequence"],
        "started_at_ms": started_at_ms,
        "ended_at_ms": None if duration_ms is None else started_at_ms + duration_ms,
        "duration_ms": duration_ms,
        "follows": record.get("follows"),
        "outcome": record.get("outcome"),
        **_trigger(record),
        "waited_phase": waited.get("phase"),
        "waited_ms": waited.get("ms"),
        "waited_member_ids": list(waited.get("member_ids") or ()),
        "stopped_total_ms": stopped.get("total_ms"),
        "stopped_longest_ms": stopped.get("longest_ms"),
        "needless": _needless(record),
        "event": record,
    }


def _needless(record: Json) -> bool | None:
    partitions = record.get("partitions") or {}
    if record.get("outcome") == "empty":
        return False
    if record.get("outcome") != "stable" or not partitions.get("known"):
        return None
    moved = partitions.get("gained") or partitions.get("given_up")
    return bool(record.get("members_before")) and not moved


def _members(record: Json) -> list[Row]:
    rows = []
    for ordinal, member in enumerate(record.get("members") or ()):
        partitions = member.get("partitions") or {}
        is_known = bool(partitions.get("known"))
        told_ms, joined_ms = member.get("told_ms"), member.get("join_received_ms")
        has_both = told_ms is not None and joined_ms is not None
        rows.append(
            {
                "sequence": record["sequence"],
                "started_at_ms": record["started_at_ms"],
                "ordinal": ordinal,
                **{name: member.get(name) for name in _MEMBER},
                "owner": member.get("instance_id") or member.get("member_id"),
                "join_delay_ms": joined_ms - told_ms if has_both else None,
                "given_up": list(partitions.get("given_up") or ()) if is_known else [],
                "gained": list(partitions.get("gained") or ()) if is_known else [],
            }
        )
    return rows
