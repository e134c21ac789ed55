"""Events of the history as the broker's own code makes them, and as the pipeline gets them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kohort.groups.events import TriggerKind
from kohort.groups.history.json_form import as_json
from kohort.groups.history.model import (
    AssignedRecord,
    AvoidedRecord,
    HistoryRecord,
    MemberChange,
    MemberFate,
    MemberPartitions,
    MemberTimeline,
    PartitionCounts,
    RebalanceOutcome,
    RebalanceRecord,
    Stopped,
    Timeline,
    TriggerRecord,
    WaitedFor,
)

if TYPE_CHECKING:
    from kohort.insight.analysis.rows import GroupHistory
    from kohort.insight.parsing import Record
    from kohort.pipeline.lake import Lake
    from kohort.pipeline.rebalances.ingest import Tally

CLUSTER = "cluster-1"
GROUP = "billing"
BEGIN_MS = 1_767_362_400_000
"""2026-01-02 14:00:00."""


def member(
    member_id: str,
    *,
    sync: int | None = None,
    gained: Iterable[str] = (),
    given_up: Iterable[str] = (),
    kept: int = 0,
    **more: Any,  # noqa: ANN401 - fields of the model.
) -> MemberTimeline:
    """A member with the times of its join (`join=`) and of its assignment (`sync=`)."""
    join = more.pop("join", None)
    more.setdefault("mode", None if join is None else "eager")
    if more["mode"] == "eager" and sync is not None:
        more.setdefault("stopped_ms", sync - join)
    gained, given_up = tuple(gained), tuple(given_up)
    return MemberTimeline(
        member_id=member_id,
        client_id=more.pop("client_id", member_id.partition("-")[0]),
        host=more.pop("host", "/10.0.0.1"),
        join_received_ms=join,
        sync_answered_ms=sync,
        fate=MemberFate(more.pop("fate", "kept")),
        partitions=MemberPartitions(
            known=True,
            kept=kept,
            gained=gained,
            gained_count=len(gained),
            given_up=given_up,
            given_up_count=len(given_up),
        ),
        **more,
    )


def rebalance(
    sequence: int,
    at_s: float,
    *members: MemberTimeline,
    trigger: str = "member_added",
    by: str | None = None,
    **more: Any,  # noqa: ANN401 - fields of the model.
) -> RebalanceRecord:
    """A rebalance that began `at_s` seconds after two o'clock, by a member's doing."""
    started_at_ms = BEGIN_MS + int(at_s * 1000)
    finished_ms = more.pop("finished", 500)
    timeout = 45_000 if trigger == "session_expired" else None
    stops = [row.stopped_ms for row in members if row.stopped_ms and row.fate != "new"]
    shares = [row.partitions for row in members]
    fields: dict[str, Any] = {
        "group": GROUP,
        "previous_generation": sequence - 1,
        "generation": sequence,
        "previous_state": "Stable" if sequence > 1 else "Empty",
        "outcome": RebalanceOutcome(more.pop("outcome", "stable")),
        "members_before": len([row for row in members if row.fate != "new"]),
        "waited_for": more.pop("waited_for", WaitedFor()),
        "partitions": PartitionCounts(
            known=True,
            kept=sum(share.kept for share in shares),
            gained=sum(share.gained_count for share in shares),
            given_up=sum(share.given_up_count for share in shares),
        ),
        "stopped": Stopped(
            member_count=len(stops), longest_ms=max(stops, default=0), total_ms=sum(stops)
        ),
    }
    return RebalanceRecord(
        sequence=sequence,
        started_at_ms=started_at_ms,
        trigger=TriggerRecord(
            kind=TriggerKind(trigger),
            at_ms=started_at_ms,
            member_id=by,
            client_id=None if by is None else by.partition("-")[0],
            host=None if by is None else "/10.0.0.1",
            session_timeout_ms=timeout,
        ),
        timeline=Timeline(finished_ms=finished_ms),
        members=members,
        **(fields | more),
    )


def avoided(sequence: int, at_s: float, kind: str = "leader_rejoined") -> AvoidedRecord:
    at_ms = BEGIN_MS + int(at_s * 1000)
    return AvoidedRecord(
        group=GROUP,
        sequence=sequence,
        generation=1,
        at_ms=at_ms,
        trigger=TriggerRecord(kind=TriggerKind(kind), at_ms=at_ms),
    )


def assigned(sequence: int, at_s: float) -> AssignedRecord:
    """An assignment of a share group."""
    at_ms = BEGIN_MS + int(at_s * 1000)
    return AssignedRecord(
        group="jobs",
        sequence=sequence,
        previous_generation=sequence,
        generation=sequence + 1,
        at_ms=at_ms,
        trigger=TriggerRecord(kind=TriggerKind.MEMBER_ADDED, at_ms=at_ms, member_id="w-1"),
        members=(MemberChange(member_id="w-1", fate=MemberFate.NEW),),
    )


def line(record: HistoryRecord) -> bytes:
    """The record as the broker writes it."""
    return json.dumps(as_json(record)).encode()


def records(values: Iterable[bytes | None]) -> list[Record]:
    """Values as they come in."""
    from kohort.insight.parsing import Record  # noqa: PLC0415

    return [
        Record(CLUSTER, "history", 0, offset, None, GROUP.encode(), value)
        for offset, value in enumerate(values)
    ]


def take(lake: Lake, given: Iterable[Record]) -> Tally:
    """Write records to the tables as a task does, here."""
    from kohort.pipeline.rebalances.ingest import Ingest, Writer  # noqa: PLC0415 - Spark's types.

    Ingest(lake)
    return Writer(lake.tables).write_all(given)


def histories(*given: HistoryRecord) -> dict[str, GroupHistory]:
    """What the tables of the history have of these, by group."""
    from kohort.insight.analysis.rows import read_histories  # noqa: PLC0415
    from kohort.insight.parsing import typed  # noqa: PLC0415

    found = read_histories(CLUSTER, (typed(line(record).decode()) for record in given))
    return {history.group: history for history in found}
