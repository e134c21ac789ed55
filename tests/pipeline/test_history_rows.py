"""From records to events and reasons against them, and from events to event_rows."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kohort.groups.history.json_form import as_json
from kohort.groups.history.model import WaitedFor
from kohort.insight import event_rows
from kohort.insight.parsing import Read, Refused, read, typed
from kohort.insight.tables.history import AVOIDED, MEMBERS, REBALANCES, RUNNING
from tests.pipeline.events import BEGIN_MS, avoided, line, member, rebalance, records

if TYPE_CHECKING:
    from kohort.groups.history.model import HistoryRecord

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


def event_of(record: HistoryRecord) -> dict[str, Any]:
    return typed(line(record).decode())


@pytest.mark.parametrize(
    ("reason", "value"), [(reason, value) for reason, group in BAD.items() for value in group]
)
def test_what_is_no_event_gets_a_reason(reason: str, value: bytes | None) -> None:
    (record,) = records([value])
    refused = read(record)
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.record) == (reason, record)
    assert refused.detail


def test_fields_and_names_of_younger_brokers_are_no_reason() -> None:
    younger = changed(
        moon={"phase": 1},
        outcome="handed_over",
        error={"number": [1]},
        trigger=GOOD["trigger"] | {"kind": "eclipse"},
    )
    older = json.dumps({name: GOOD[name] for name in GOOD if name not in {"members", "stopped"}})
    first, second = map(read, records([younger, older.encode()]))
    assert isinstance(first, Read)
    assert isinstance(second, Read)
    row = event_rows.rebalance(first.event)
    assert (row["outcome"], row["trigger_kind"]) == ("handed_over", "eclipse")
    assert row["error"] == '{"number":[1]}'
    assert event_rows.rebalance(second.event)["stopped_total_ms"] is None
    assert not list(event_rows.members(second.event))


def test_halves_of_characters_are_replaced_since_no_file_holds_them() -> None:
    (record,) = records([changed(leader="\ud800x", protocol="\U0001f600")])
    said = read(record)
    assert isinstance(said, Read)
    assert (said.event["leader"], said.event["protocol"]) == ("?x", "\U0001f600")


def test_a_rebalance_is_one_row_with_what_the_event_says() -> None:
    record = rebalance(
        5,
        1.25,
        member("a-1", join=100, sync=400, kept=2, given_up=["t-1"], told_ms=30),
        member("b-1", join=0, sync=400, gained=["t-1"], fate="new"),
        by="b-1",
        follows=4,
        waited_for=WaitedFor(phase="join", member_ids=("a-1",), ms=70),
    )
    event = event_of(record)
    row = event_rows.rebalance(event)
    for column, value in {
        "group": "billing",
        "sequence": 5,
        "follows": 4,
        "started_at": BEGIN_MS + 1_250,
        "ended_at": BEGIN_MS + 1_750,
        "trigger_kind": "member_added",
        "trigger_member_id": "b-1",
        "trigger_at": BEGIN_MS + 1_250,
        "waited_phase": "join",
        "waited_member_ids": ["a-1"],
        "waited_ms": 70,
        "duration_ms": event["timeline"]["finished_ms"],
        "partitions_kept": 2,
        "partitions_gained": 1,
        "partitions_given_up": 1,
        "stopped_member_count": 1,
        "stopped_total_ms": 300,
        "stopped_longest_ms": 300,
        "needless": False,
    }.items():
        assert row[column] == value, column
    other = event_rows.avoided(event_of(avoided(6, 2)))
    assert (other["sequence"], other["trigger_kind"]) == (6, "leader_rejoined")
    assert other["at"] == BEGIN_MS + 2_000


def test_every_column_of_the_tables_is_made_by_the_row() -> None:
    event = event_of(rebalance(1, 0, member("a-1", join=0, sync=4, kept=1)))
    sourced = {"cluster_id", "topic", "partition", "offset", "event"}
    (row,) = event_rows.members(event)
    for table, names in (
        (MEMBERS, row.keys()),
        (REBALANCES, event_rows.rebalance(event).keys()),
        (RUNNING, event_rows.running(event).keys()),
        (AVOIDED, event_rows.avoided(event_of(avoided(2, 0))).keys()),
    ):
        assert set(table.names) - sourced <= names, table.name


def test_members_are_rows_in_the_order_of_the_event() -> None:
    record = rebalance(
        2,
        0,
        member("a-1", join=100, sync=400, kept=1, told_ms=30, role="leader"),
        member("x-9", instance_id="x", fate="session_expired", fate_ms=0, given_up=["t-2"]),
        trigger="session_expired",
        by="x-9",
    )
    found = list(event_rows.members(event_of(record)))
    assert [row["ordinal"] for row in found] == [0, 1]
    assert [row["member_id"] for row in found] == ["a-1", "x-9"]
    assert [row["owner"] for row in found] == ["a-1", "x"]
    assert [row["join_delay_ms"] for row in found] == [70, None]
    assert [row["stopped_ms"] for row in found] == [300, None]
    assert [row["given_up"] for row in found] == [[], ["t-2"]]
    assert [(row["fate"], row["fate_ms"]) for row in found] == [
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
def test_needless_is_what_moved_nothing(more: dict[str, Any], expected: bool) -> None:
    record = rebalance(2, 0, member("a-1", join=0, sync=4, kept=1, **more))
    assert event_rows.rebalance(event_of(record))["needless"] is expected
    assert event_rows.rebalance(event_of(rebalance(3, 1, outcome="empty")))["needless"] is False
    assert event_rows.rebalance(event_of(rebalance(4, 2, outcome="superseded")))["needless"] is None
    wanted = replace(record, trigger=replace(record.trigger, reason="ENFORCED"))
    assert event_rows.rebalance(event_of(wanted))["needless"] is False


def test_the_same_event_is_the_same_however_its_json_was_written() -> None:
    one, other = rebalance(1, 0), rebalance(1, 9)
    spaced = json.dumps(as_json(one), indent=1, sort_keys=True)
    assert typed(spaced) == event_of(one) != event_of(other)
