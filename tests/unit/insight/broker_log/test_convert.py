"""The logs in `real` are what Kafka 4.4.0 and 3.9.1 wrote while groups did the same things.

First three dynamic members come, one after the other; the third asks for other topics; the leader
joins again; the third leaves, the second falls silent, the first leaves. Then two static members
come, one restarts, restarts again with another assignor, and is removed; the other one leaves. In
the third group somebody misses the rebalance timeout, and somebody else never fetches its share.
"""

import gzip
import json
from datetime import UTC
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from kohort.cli import main
from kohort.groups.history.json_form import from_json
from kohort.groups.history.model import RebalanceRecord
from kohort.insight.broker_log.convert import Converter
from kohort.insight.history_files import histories

REAL = Path(__file__).with_name("real")
LOGS = ("kafka-4.4.log", "kafka-3.9.log")
Record = dict[str, Any]


def converted(*paths: Path) -> list[Record]:
    files = histories([str(path) for path in paths], UTC)
    return [json.loads(line) for _, lines in files for _, line in lines]


def of_group(name: str, group: str) -> list[Record]:
    return [record for record in converted(REAL / name) if record["group"] == f"shop {group}"]


def told(*lines: str) -> list[Record]:
    """Records of lines without their time, which are a second apart."""
    converter = Converter(UTC)
    stamped = [
        f"[2024-05-06 07:08:{second:02},500] INFO [GroupCoordinator 0]: {line} "
        "(kafka.coordinator.group.GroupCoordinator)\n"
        for second, line in enumerate(lines)
    ]
    return [*converter.records(stamped), *converter.end()]


LAYOUTS = {
    "Kafka's own": "[{d},500] INFO {m} ({c})",
    "line number": "[{d},500] INFO {m} ({c}:66)",
    "Strimzi's": "{d} INFO {m} ({c}) [data-plane-kafka-request-handler-3]",
    "line number and thread": "[{d},500] INFO {m} ({c}:66) [executor-Heartbeat]",
    "Docker's json-file driver": (
        '{{"log":"[{d},500] INFO {j} ({c})\\n","time":"2024-01-01T00:00:00Z"}}'
    ),
    "JSON layout": '{{"timestamp":"{d}.500Z","level":"INFO","loggerName":"{c}","message":"{j}"}}',
    "JSON layout behind a prefix": 'kafka-1  | {{"@timestamp":"{d}.500Z","message":"{j}"}}',
    "JSON layout in Docker's": '{{"log":"{{\\"time\\":\\"{d}\\",\\"msg\\":\\"{m}\\"}}\\n"}}',
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_the_layout_of_a_log_makes_no_difference(layout: str) -> None:
    messages = [
        (
            "Preparing to rebalance group a b in state PreparingRebalance with old generation 41 "
            "(__consumer_offsets-45) (reason: Adding new member w-1 with group instance id None)"
        ),
        "Stabilized group a b generation 42 (__consumer_offsets-45) with 1 members",
        (
            "Assignment received from leader w-1 for group a b for generation 42. The group has 1 "
            "members, 0 of which are static."
        ),
        (
            "Preparing to rebalance group a b in state PreparingRebalance with old generation 42 "
            "(__consumer_offsets-45) (reason: removing member w-1 on heartbeat expiration)"
        ),
        "Group a b with generation 43 is now empty (__consumer_offsets-45)",
    ]
    converter = Converter(UTC)
    lines = [
        layout.format(
            d=f"2024-05-06 07:08:{second:02}",
            m=message,
            j=json.dumps(message)[1:-1],
            c="kafka.coordinator.group.GroupCoordinator",
        )
        for second, message in enumerate(messages)
    ]
    records = [*converter.records(lines), *converter.end()]
    causes = [(one["trigger"]["kind"], one["trigger"].get("instance_id")) for one in records]
    assert causes == [("member_added", None), ("session_expired", None)]
    assert [record["generation"] for record in records] == [42, 43]
    assert converter.warning() is None


@pytest.mark.parametrize(
    "line",
    [
        "Preparing to rebalance group a (reason: none) - GroupCoordinator",
        (
            "[2024-05-06 07:08:09,500] INFO Preparing to rebalance group a in state "
            "PreparingRebalance with old generation 41 (__consumer_offsets-45) (reason: Adding new "
            "member w-1 with group instance id None) (unknown layout)"
        ),
        (
            "[2024-05-06 07:08:09,500] INFO Preparing to rebalance group a in state "
            "PreparingRebalance with old generation 41 (__consumer_offsets-45) (reason: a new one)"
        ),
    ],
)
def test_a_line_that_begins_a_rebalance_and_is_not_understood_is_reported(line: str) -> None:
    converter = Converter(UTC)
    records = [*converter.records([line, line + " "]), *converter.end()]
    assert converter.unread_count == 2
    assert line in str(converter.warning())
    assert {record["trigger"]["kind"] for record in records} <= {"unknown"}


def summary(record: Record) -> tuple[Any, ...]:
    return (
        record["sequence"],
        record["trigger"]["kind"],
        record.get("outcome"),
        record.get("previous_state"),
        record.get("members_before"),
        record.get("members_after"),
    )


def fates(record: Record) -> list[str]:
    return sorted(member["fate"] for member in record["members"])


@pytest.mark.parametrize("name", LOGS)
def test_the_dynamic_group_is_told_alike_by_both_brokers(name: str) -> None:
    records = of_group(name, "dynamic group")
    assert [summary(record) for record in records] == [
        (1, "member_added", "stable", "Empty", 0, 1),
        (2, "member_added", "stable", "Stable", 1, 2),
        (3, "member_added", "stable", "Stable", 2, 3),
        (4, "protocols_changed", "stable", "Stable", 3, 3),
        (5, "leader_rejoined", "stable", "Stable", 3, 3),
        (6, "member_left", "stable", "Stable", 3, 2),
        (7, "session_expired", "stable", "Stable", 2, 1),
        (8, "member_left", "empty", "Stable", 1, 0),
    ]
    assert [record["generation"] for record in records] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [fates(record) for record in records] == [
        ["new"],
        ["kept", "new"],
        ["kept", "kept", "new"],
        ["kept", "kept", "kept"],
        ["kept", "kept", "kept"],
        ["kept", "kept", "left"],
        ["kept", "session_expired"],
        ["left"],
    ]


@pytest.mark.parametrize("name", LOGS)
def test_the_static_groups_restart_is_an_avoided_rebalance(name: str) -> None:
    records = of_group(name, "static")
    assert [(record["kind"], record["trigger"]["kind"]) for record in records] == [
        ("rebalance", "static_added"),
        ("avoided", "static_replaced"),
        ("rebalance", "static_replaced"),
        ("rebalance", "member_left"),
        ("rebalance", "member_left"),
    ]
    assert [cause["kind"] for cause in records[0]["further_causes"]] == ["static_added"]
    assert records[1]["trigger"]["instance_id"] == "two"
    assert records[1]["generation"] == 1
    replaced = next(row for row in records[2]["members"] if row["fate"] == "replaced")
    assert replaced["replaced_by"] == records[2]["trigger"]["member_id"]
    assert records[3]["trigger"]["reason_text"] == "removed by hand"


@pytest.mark.parametrize("name", LOGS)
def test_members_that_missed_a_timeout_are_named(name: str) -> None:
    records = of_group(name, "slow")
    late = records[1]
    assert (late["timeline"]["join_phase_end"], late["waited_for"]["phase"]) == ("timeout", "join")
    assert late["waited_for"]["member_ids"] == [
        row["member_id"] for row in late["members"] if row["fate"] == "rebalance_timeout"
    ]
    assert (late["leader_changed"], late["leader_change"]) == (True, "left")
    assert records[3]["trigger"]["kind"] == "sync_expired"
    assert records[3]["trigger"]["removed"] == [records[2]["trigger"]["member_id"]]


@pytest.mark.parametrize("name", LOGS)
def test_times_come_from_the_lines(name: str) -> None:
    slow = of_group(name, "slow")[1]
    # The rebalance timeout was two seconds; the leader's sync came when it wished to.
    assert 2_000 <= slow["timeline"]["join_phase_ms"] < 2_100
    assert slow["timeline"]["finished_ms"] >= slow["timeline"]["join_phase_ms"]
    day = 24 * 3600 * 1000
    assert slow["started_at_ms"] // day == 20_778


@pytest.mark.parametrize("name", LOGS)
def test_what_the_members_said_is_kept(name: str) -> None:
    records = of_group(name, "dynamic group")
    assert (
        records[3]["trigger"]["reason_text"]
        == "need to revoke partitions [t-1, t-2]; as (odd) text"
    )
    assert records[3]["trigger"]["reason"] == "PARTITIONS_REVOKED"
    assert records[4]["trigger"]["reason"] == "TOPIC_METADATA_CHANGE"
    assert records[4]["trigger"]["reason_text"].endswith("(version4: {t=4})")
    assert records[4]["trigger"]["was_leader"] is True
    assert records[5]["trigger"]["reason_text"] == "the consumer is being closed"
    assert {record["trigger"]["client_id"] for record in records} == {"test"}


def test_kafka_3_tells_more_of_those_who_leave() -> None:
    (last,) = of_group("kafka-3.9.log", "dynamic group")[7:]
    assert last["trigger"]["host"] == "/127.0.0.1"
    assert last["members"][0]["client_id"] == "test"


@pytest.mark.parametrize("name", LOGS)
def test_every_record_is_one_of_the_history(name: str) -> None:
    for record in converted(REAL / name):
        made = from_json(record)
        assert made.sequence == record["sequence"]
        if isinstance(made, RebalanceRecord):
            assert not made.partitions.known
            assert not made.stopped.member_count


@pytest.mark.parametrize("name", LOGS)
def test_every_line_that_begins_or_ends_a_rebalance_is_understood(name: str) -> None:
    lines = (REAL / name).read_text().splitlines()
    converter = Converter(UTC)
    records = [*converter.records(lines), *converter.end()]
    begun = sum("Preparing to rebalance" in line for line in lines)
    assert sum(record["kind"] == "rebalance" for record in records) == begun == 17
    kinds = {record["trigger"]["kind"] for record in records}
    assert "unknown" not in kinds


def test_lines_of_kafka_2_are_understood() -> None:
    records = told(
        "Preparing to rebalance group g in state PreparingRebalance with old generation 41 "
        "(__consumer_offsets-28) (reason: Adding new member consumer-1-x with group instanceid "
        "None)",
        "Stabilized group g generation 42 (__consumer_offsets-28)",
        "Assignment received from leader for group g for generation 42",
        "Member[group.instance.id None, member.id consumer-1-x] in group g has left, removing it "
        "from the group",
        "Preparing to rebalance group g in state PreparingRebalance with old generation 42 "
        "(__consumer_offsets-28) (reason: removing member consumer-1-x on LeaveGroup)",
        "Group g with generation 43 is now empty (__consumer_offsets-28)",
    )
    assert [summary(record) for record in records] == [
        (42, "member_added", "stable", None, None, None),
        (43, "member_left", "empty", "Stable", None, 0),
    ]
    assert records[1]["trigger"]["removed"] == ["consumer-1-x"]


def test_lines_of_kafka_1_have_no_reason() -> None:
    records = told(
        "Preparing to rebalance group g with old generation 7 (__consumer_offsets-25)",
        "Member c-1 in group g has failed, removing it from the group",
        "Stabilized group g generation 8 (__consumer_offsets-25)",
        "Assignment received from leader for group g for generation 8",
    )
    assert [summary(record)[:3] for record in records] == [(8, "unknown", "stable")]
    assert [cause["kind"] for cause in records[0]["further_causes"]] == ["session_expired"]
    assert fates(records[0]) == ["session_expired"]


def test_an_unknown_reason_is_kept_in_words() -> None:
    (record,) = told(
        "Preparing to rebalance group g in state PreparingRebalance with old generation 1 "
        "(__consumer_offsets-2) (reason: the moon is full)"
    )
    assert record["trigger"]["kind"] == "unknown"
    assert record["trigger"]["detail"] == "the moon is full"


def test_a_rebalance_on_top_of_another_one_follows_it() -> None:
    first, second = told(
        "Preparing to rebalance group g in state PreparingRebalance with old generation 1 "
        "(__consumer_offsets-2) (reason: removing member a on heartbeat expiration)",
        "Stabilized group g generation 2 (__consumer_offsets-2) with 3 members",
        "Preparing to rebalance group g in state PreparingRebalance with old generation 2 "
        "(__consumer_offsets-2) (reason: removing member b on heartbeat expiration)",
        "Stabilized group g generation 3 (__consumer_offsets-2) with 2 members",
        "Assignment received from leader c for group g for generation 3. The group has 2 members",
    )
    assert (first["outcome"], first["superseded_by"]) == ("superseded", second["sequence"])
    assert (second["follows"], second["previous_state"]) == (
        first["sequence"],
        "CompletingRebalance",
    )
    assert first["timeline"]["finished_ms"] == 2_000
    # The two that are left were not named.
    assert second["members_dropped"] == 2


def test_what_runs_at_the_end_of_the_log_is_told_as_running() -> None:
    (record,) = told(
        "Preparing to rebalance group g in state PreparingRebalance with old generation 1 "
        "(__consumer_offsets-2) (reason: removing member a on heartbeat expiration)"
    )
    assert (record["outcome"], record["generation"]) == ("running", None)


def test_names_are_forgotten_when_they_cannot_be_right() -> None:
    joined = (
        "Pending dynamic member with id {} joins group g in Stable state. Adding to the group now."
    )
    records = told(
        *(joined.format(name) for name in ("a", "b", "c")),
        "Preparing to rebalance group g in state PreparingRebalance with old generation 1 "
        "(__consumer_offsets-2) (reason: Adding new member a with group instance id None)",
        "Stabilized group g generation 2 (__consumer_offsets-2) with 2 members",
        "Assignment received from leader a for group g for generation 2. The group has 2 members",
    )
    assert (records[0]["members"], records[0]["members_dropped"]) == ([], 2)


def test_times_are_the_brokers_unless_they_say_otherwise() -> None:
    line = (
        "{} INFO [GroupCoordinator 0]: Preparing to rebalance group g with old generation 7 "
        "(__consumer_offsets-25)"
    )
    berlin = ZoneInfo("Europe/Berlin")

    def started_at_ms(stamp: str, zone: ZoneInfo) -> int:
        converter = Converter(zone)
        (record,) = [*converter.records([line.format(stamp)]), *converter.end()]
        return int(record["started_at_ms"])

    utc = started_at_ms("[2024-07-01 12:00:00,123]", ZoneInfo("UTC"))
    assert utc % 1000 == 123
    assert started_at_ms("[2024-07-01 12:00:00,123]", berlin) == utc - 2 * 3_600_000
    assert started_at_ms("2024-07-01T12:00:00.123Z", berlin) == utc
    assert started_at_ms("2024-07-01T12:00:00.123+02:00", ZoneInfo("UTC")) == utc - 2 * 3_600_000


def test_other_lines_and_bytes_of_any_kind_are_passed_over(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    real = (REAL / LOGS[0]).read_bytes().splitlines(keepends=True)
    noise = b"\xff\xfe group \x00\n[2024-13-99 99:99:99,000] Stabilized group g generation 1\n\n"
    log.write_bytes(noise.join(real))
    assert len(converted(log)) == 18


def test_a_member_that_an_administrator_removed_did_not_leave() -> None:
    (record,) = told(
        "[Group g] Member a has left group through explicit `LeaveGroup` request; client reason: "
        "member was removed by an admin: broken",
        "Preparing to rebalance group g in state PreparingRebalance with old generation 3 "
        "(reason: explicit `LeaveGroup` request for (a) members.).",
        "Group g with generation 4 is now empty.",
    )
    assert record["trigger"]["kind"] == "removed_by_admin"
    assert fates(record) == ["removed_by_admin"]


def test_rotated_files_are_read_as_one_log(tmp_path: Path) -> None:
    lines = (REAL / LOGS[0]).read_bytes().splitlines(keepends=True)
    old, new = tmp_path / "server.log.1.gz", tmp_path / "server.log"
    with gzip.open(old, "wb") as file:
        file.writelines(lines[:30])
    new.write_bytes(b"".join(lines[30:]))
    assert converted(old, new) == converted(REAL / LOGS[0])


def test_a_file_that_is_missing_is_named_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, logs = tmp_path / "history.jsonl", [str(REAL / LOGS[0])]
    command = ["pipeline", "convert-log", "--output", str(output), *logs]
    assert main([*command, str(tmp_path / "absent.log")]) == 2
    assert "absent.log" in capsys.readouterr().err
    assert not output.exists()
    assert main(command) == 0
    assert len(output.read_text().splitlines()) == 18
