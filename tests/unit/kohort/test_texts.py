"""What the commands print, from what they are told; nothing is asked here."""

import io
import json
from collections.abc import Sequence
from typing import Any

import pytest

from kohort.admin.groups import Group, Member, Position
from kohort.cli import main
from kohort.cli.groups.history import why_lines
from kohort.cli.groups.state import group_lines
from kohort.cli.groups.summary import last_act
from kohort.cli.output import table, wrapped
from kohort.groups.events import TriggerKind
from kohort.groups.history.json_form import as_json
from kohort.groups.history.model import (
    RebalanceOutcome,
    RebalanceRecord,
    Timeline,
    TriggerRecord,
    WaitedFor,
)
from kohort.groups.history.waiting_text import waiting_lines

NOW_MS = 1_767_362_460_000


def clock(wall_ms: int) -> str:
    return f"T{(wall_ms - NOW_MS) // 1000:+}"


def someone(name: str, instance: str | None = None) -> dict[str, Any]:
    return {"member_id": name, "instance_id": instance, "client_id": "", "host": "/10.0.0.1"}


def waiting(
    phase: str,
    members: Sequence[dict[str, Any]] = (),
    *,
    count: int | None = None,
    pending: int = 0,
    **more: object,
) -> list[str]:
    told = {
        "phase": phase,
        "since_ms": NOW_MS - 12_000,
        "until_ms": NOW_MS + 33_000,
        "member_ids": [one["member_id"] for one in members],
        "member_count": len(members) if count is None else count,
        "pending_ids": [],
        "pending_count": pending,
        "members": list(members),
        **more,
    }
    return list(waiting_lines({"at_ms": NOW_MS, "waiting": told}, clock))


def test_of_many_that_are_waited_for_ten_are_listed() -> None:
    lines = waiting("join", [someone(f"m{number}") for number in range(100)], count=4_000)
    assert lines[0].startswith("Right now it waits for 4,000 members to join again, since")
    assert lines[1] == "  member m0 (host 10.0.0.1)"
    assert lines[11:] == ["  and 3990 more"]


def test_a_member_that_sends_heartbeats_may_be_finishing_records() -> None:
    (line,) = waiting("join", [someone("a") | {"silent_ms": 1_000}])
    assert "still sends heartbeats, the last 1 s ago" in line
    assert "or it is finishing records of partitions that it gives up" in line


def test_a_silent_member_is_removed_when_its_session_ends() -> None:
    silent = someone("a") | {"silent_ms": 12_000, "session_until_ms": NOW_MS + 8_000}
    (line,) = waiting("join", [silent])
    assert "until T+33 at the latest" in line
    assert line.endswith("12 s ago; without another it is removed at T+8 (in 8 s).")
    (line,) = waiting("join", [silent | {"session_until_ms": NOW_MS + 34_000}])
    assert "removed" not in line


def answer(**changes: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "group": "billing",
        "at_ms": NOW_MS,
        "state": "Stable",
        "waiting": None,
        "total_rebalances": 0,
        "total_avoided": 0,
        "rebalances": [],
    } | changes


def running(**changes: Any) -> dict[str, Any]:  # noqa: ANN401
    record = RebalanceRecord(
        group="billing",
        sequence=1,
        previous_generation=1,
        previous_state="Stable",
        started_at_ms=NOW_MS - 60_000,
        trigger=TriggerRecord(kind=TriggerKind.MEMBER_ADDED, at_ms=NOW_MS - 60_000, member_id="a"),
        outcome=RebalanceOutcome.RUNNING,
        waited_for=WaitedFor(phase="join", member_ids=("b",), ms=4_000),
    )
    return as_json(record) | {"stored_at_ms": NOW_MS - 55_000} | changes


def test_a_stored_rebalance_that_still_runs_has_its_wait_until_now() -> None:
    lines = list(why_lines(answer(state="PreparingRebalance", rebalances=[running()])))
    assert "it has been waiting 59 s for member b" in lines[0]
    assert "as stored at" in lines[1]


def test_a_stored_rebalance_that_has_ended_since_is_dated() -> None:
    lines = list(why_lines(answer(rebalances=[running()], stored_at_ms=NOW_MS - 55_000)))
    assert "it has been waiting 4 s for member b" in lines[0]
    assert "as of" in lines[1]
    assert "Stable" in lines[1]
    assert "stored records as of" in lines[-1]


def rebalance(sequence: int, kind: TriggerKind, name: str) -> dict[str, Any]:
    at_ms = NOW_MS - 100_000 + 3_000 * sequence
    record = RebalanceRecord(
        group="billing",
        sequence=sequence,
        previous_generation=sequence,
        generation=sequence + 1,
        previous_state="Stable",
        started_at_ms=at_ms,
        trigger=TriggerRecord(
            kind=kind, at_ms=at_ms, member_id=f"{name}-{sequence}", client_id=name, host="/h"
        ),
        timeline=Timeline(finished_ms=500),
        outcome=RebalanceOutcome.STABLE,
    )
    return as_json(record)


def test_a_deploy_is_one_act_before_its_rebalances() -> None:
    records = []
    for number, name in enumerate("abc"):
        records.append(rebalance(2 * number + 1, TriggerKind.MEMBER_LEFT, name))
        records.append(rebalance(2 * number + 2, TriggerKind.MEMBER_ADDED, name))
    act = last_act("billing", records)
    assert act is not None
    assert (act["kind"], act["process_count"], act["rebalance_count"]) == ("deploy", 3, 6)
    lines = list(why_lines(answer(rebalances=records[-1:], act=act)))
    assert "rolling restart of 3 members (a, b, c), " in lines[0]
    assert "6 rebalances in 15.5 s" in lines[0]


def test_a_history_from_standard_input_is_read_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = rebalance(1, TriggerKind.MEMBER_LEFT, "a")
    text = json.dumps(record).encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    main(["groups", "why", record["group"], "--from", "-"])
    assert f"Group {record['group']} rebalanced" in capsys.readouterr().out


def test_lines_are_broken_between_words_and_indented() -> None:
    (short, *long) = wrapped(["one", "  " + "word " * 30], width=60)
    assert short == "one"
    assert len(long) > 2
    assert all(len(line) <= 60 and line.startswith("  ") for line in long)
    assert list(wrapped(["x" * 500])) == ["x" * 500]


def test_columns_are_aligned_and_hostile_text_is_written_out() -> None:
    lines = list(table(("NAME", "LAG"), [("a\x1b[2J", 5), ("", 1_000), ("long name", None)]))
    assert lines == [
        "NAME        LAG",
        "a\\x1b[2J      5",
        "-          1000",
        "long name     -",
    ]


def described(members: list[Member], **changes: Any) -> list[list[str]]:  # noqa: ANN401
    """The words of the lines about a group."""
    group: dict[str, Any] = {"group_id": "billing", "state": "Stable", "protocol_type": "consumer"}
    group |= {"protocol": "range", "coordinator": "host:9092", "positions": []}
    return [line.split() for line in group_lines(Group(**group | {"members": members} | changes))]


def test_members_of_a_consumer_group_are_described_with_what_they_are_to_have() -> None:
    members = [
        Member("a", None, "c", "h", [("t", 0), ("t", 1)], 3, [("t", 0)]),
        Member("b", None, "c", "h", [], 4, [("t", 1)]),
        Member("c", None, "c", "h", [("t", 2)], 4, [("t", 2)]),
    ]
    assert described(members, state="Reconciling", epoch=4)[2:] == [
        ["MEMBER", "STATIC", "ID", "HOST", "PARTITIONS", "EPOCH", "TARGET", "CLIENT", "ID"],
        ["a", "-", "h", "t:0-1", "3", "t:0", "c"],
        ["b", "-", "h", "-", "4", "t:1", "c"],
        ["c", "-", "h", "t:2", "4", "the", "same", "c"],
    ]


def test_members_of_a_share_group_are_described_without_static_ids() -> None:
    members = [Member("a", None, "c", "h", [("t", 0)], 2, [("t", 0)])]
    assert described(members, protocol_type="share", epoch=2)[2:] == [
        ["MEMBER", "HOST", "PARTITIONS", "EPOCH", "TARGET", "CLIENT", "ID"],
        ["a", "h", "t:0", "2", "the", "same", "c"],
    ]


def test_a_group_is_described_with_its_lag_in_one_line_first() -> None:
    owned = [("t", 0), ("t", 1), ("t", 2), ("t", 5), ("u", 1)]
    members = [Member("a", None, "c", "h1", owned), Member("b", "pod", "c", "h2", None)]
    positions = [Position("t", 0, 3, 10), Position("t", 1, None, 4), Position("t", 2, 9, 8)]
    first, _, _, *lines = described(members, positions=positions)
    assert " ".join(first) == (
        "billing: Stable, assignor range, 2 members, lag 7 and unknown for 1 partition "
        "(coordinator host:9092)"
    )
    assert lines[:2] == [["a", "-", "h1", "t:0-2,5", "u:1"], ["b", "pod", "h2", "?"]]
    assert lines[4:] == [
        ["t", "0", "3", "10", "7", "a"],
        ["t", "1", "-", "4", "-", "a"],
        ["t", "2", "9", "8", "0", "a"],
    ]
