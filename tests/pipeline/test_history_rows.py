"""From records to events and reasons against them, and from events to rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kohort.broker.core.history.json_form import as_json
from kohort.broker.core.history.model import WaitedFor
from tests.pipeline.events import BEGIN_MS, avoided, events, line, member, raw, rebalance

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GOOD: dict[str, Any] = as_json(rebalance(1, 0, member("a-1", join=0, sync=400, fate="new")))


def changed(**fields: object) -> bytes:
    return json.dumps(GOOD | fields).encode()


BAD: dict[str, list[bytes | None]] = {
    "no_value": [None],
    "not_json": [b"", b"{", b"\xff\xfe", b"null", b"[1]", b'"text"', b"[%s]" % changed()],
    "schema_version": [changed(schema=2), b'{"schema": 7, "kind": {"new": true}}'],
    "unknown_kind": [changed(kind="postponed")],
    "not_of_the_schema": [
        changed(sequence="one"),
        changed(members={"a": 1}),
        changed(started_at_ms=-1),
        changed(started_at_ms=2**62),
        changed(sequence=0),
        changed(sequence=2**63 - 1),
    ],
    "missing_field": [
        b"{}",
        changed(group=None),
        changed(started_at_ms=None),
        changed(outcome=None),
        changed(trigger=None),
    ],
}


def test_what_is_no_event_gets_a_reason_and_stays_as_it_is(spark: SparkSession) -> None:
    from kohort.pipeline.transformations import parsing  # noqa: PLC0415

    values = [(reason, value) for reason, group in BAD.items() for value in group]
    parsed = parsing.parsed(raw(spark, [value for _, value in values] + [changed()])).persist()
    rows = parsing.quarantined(parsed).orderBy("offset").collect()
    assert [(row["reason"], row["value"] and bytes(row["value"])) for row in rows] == values
    assert [row["offset"] for row in rows] == list(range(len(values)))
    assert all(row["detail"] for row in rows)
    assert {row["key"] for row in rows} == {"billing"}
    # The one good record, behind all these.
    assert [row["offset"] for row in parsing.good(parsed).collect()] == [len(values)]


def test_fields_and_names_of_younger_brokers_are_no_reason(spark: SparkSession) -> None:
    from kohort.pipeline.transformations import history, parsing  # noqa: PLC0415

    younger = changed(
        moon={"phase": 1}, outcome="handed_over", trigger=GOOD["trigger"] | {"kind": "eclipse"}
    )
    older = json.dumps({name: GOOD[name] for name in GOOD if name not in {"members", "stopped"}})
    parsed = parsing.parsed(raw(spark, [younger, older.encode()]))
    rows = history.rebalances(parsing.good(parsed)).orderBy("offset").collect()
    assert [row["outcome"] for row in rows] == ["handed_over", "stable"]
    assert rows[0]["trigger_kind"] == "eclipse"
    assert rows[1]["stopped_total_ms"] is None


def test_a_rebalance_is_one_row_with_what_the_event_says(spark: SparkSession) -> None:
    from kohort.pipeline.transformations import history  # noqa: PLC0415

    record = rebalance(
        5,
        1.25,
        member("a-1", join=100, sync=400, kept=2, given_up=["t-1"], told_ms=30),
        member("b-1", join=0, sync=400, gained=["t-1"], fate="new"),
        by="b-1",
        follows=4,
        waited_for=WaitedFor(phase="join", member_ids=("a-1",), ms=70),
    )
    frame = events(spark, record, avoided(6, 2))
    (row,) = history.rebalances(frame).collect()
    said = as_json(record)
    for column, value in {
        "cluster_id": "cluster-1",
        "group": "billing",
        "sequence": 5,
        "follows": 4,
        "trigger_kind": "member_added",
        "trigger_member_id": "b-1",
        "waited_phase": "join",
        "waited_member_ids": ["a-1"],
        "waited_ms": 70,
        "duration_ms": said["timeline"]["finished_ms"],
        "partitions_kept": 2,
        "partitions_gained": 1,
        "partitions_given_up": 1,
        "stopped_member_count": 1,
        "stopped_total_ms": 300,
        "stopped_longest_ms": 300,
        "needless": False,
        "topic": "history",
        "offset": 0,
    }.items():
        assert row[column] == value, column
    assert row["started_at"].timestamp() * 1000 == BEGIN_MS + 1_250
    assert (row["ended_at"] - row["started_at"]).total_seconds() == 0.5
    assert json.loads(row["event"]) == said
    (other,) = history.avoided(frame).collect()
    assert (other["sequence"], other["trigger_kind"]) == (6, "leader_rejoined")
    assert other["at"].timestamp() * 1000 == BEGIN_MS + 2_000


def test_members_are_rows_in_the_order_of_the_event(spark: SparkSession) -> None:
    from kohort.pipeline.transformations import history  # noqa: PLC0415

    record = rebalance(
        2,
        0,
        member("a-1", join=100, sync=400, kept=1, told_ms=30, role="leader"),
        member("x-9", instance_id="x", fate="session_expired", fate_ms=0, given_up=["t-2"]),
        trigger="session_expired",
        by="x-9",
    )
    rows = history.members(events(spark, record)).orderBy("ordinal").collect()
    assert [row["member_id"] for row in rows] == ["a-1", "x-9"]
    assert [row["owner"] for row in rows] == ["a-1", "x"]
    assert [row["join_delay_ms"] for row in rows] == [70, None]
    assert [row["stopped_ms"] for row in rows] == [300, None]
    assert [row["given_up"] for row in rows] == [[], ["t-2"]]
    assert [(row["fate"], row["fate_ms"]) for row in rows] == [
        ("kept", None),
        ("session_expired", 0),
    ]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, True),
        ({"gained": ["t-1"]}, False),
        ({"given_up": ["t-1"]}, False),
    ],
)
def test_needless_is_what_moved_nothing(
    spark: SparkSession, more: dict[str, Any], expected: bool
) -> None:
    from kohort.pipeline.transformations import history  # noqa: PLC0415

    record = rebalance(2, 0, member("a-1", join=0, sync=4, kept=1, **more))
    empty = rebalance(3, 1, outcome="empty")
    superseded = rebalance(4, 2, outcome="superseded")
    wanted = replace(record, sequence=5, trigger=replace(record.trigger, reason="ENFORCED"))
    rows = history.rebalances(events(spark, record, empty, superseded, wanted)).orderBy("sequence")
    assert [row["needless"] for row in rows.collect()] == [expected, False, None, False]


def test_repetitions_are_one_event_and_contradictions_are_told_apart(spark: SparkSession) -> None:
    from kohort.pipeline.transformations import parsing  # noqa: PLC0415

    one, other = rebalance(1, 0), rebalance(1, 9)
    spaced = json.dumps(as_json(one), indent=1).encode()
    parsed = parsing.parsed(raw(spark, [line(one), spaced, line(other), line(one)]))
    rows = parsing.without_repetitions(parsing.identified(parsing.good(parsed))).collect()
    assert sorted(row["offset"] for row in rows) == [0, 2]
    assert len({row["fingerprint"] for row in rows}) == 2
