"""`kohort groups` on committed offsets that are not in the log, with a broker in this process."""

import json
from typing import Any

import pytest

from kohort.cli import main
from kohort.protocol.messages.share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from kohort.testing import Kafka
from tests.support import messages as m
from tests.support.network.wire import RawClient

TOPIC = "orders"
START, END = 7, 10


@pytest.fixture
def orders(kafka: Kafka) -> Kafka:
    """A broker with a topic of one partition, whose log reaches from `START` to `END`."""
    kafka.create_topic(TOPIC, partitions=1)
    for _ in range(END):
        kafka.produce(TOPIC, b"x")
    deleted = m.DeleteRecordsTopic(
        name=TOPIC, partitions=[m.DeleteRecordsPartition(partition_index=0, offset=START)]
    )
    with RawClient(kafka.port) as client:
        request = m.DeleteRecordsRequest(topics=[deleted], timeout_ms=30_000)
        answer = client.call(request, 2, m.DeleteRecordsResponse)
    assert answer.topics[0].partitions[0].low_watermark == START
    return kafka


def commit(kafka: Kafka, group: str, offset: int) -> None:
    partition = m.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = m.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
    with RawClient(kafka.port) as client:
        request = m.OffsetCommitRequest(group_id=group, member_id="", topics=[topic])
        answer = client.call(request, 9, m.OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == 0


def said(capsys: pytest.CaptureFixture[str], kafka: Kafka, *command: str) -> Any:  # noqa: ANN401
    """Run a command, and return its JSON output."""
    where = ("--bootstrap-server", kafka.bootstrap_servers, "--json")
    assert main(["groups", *command, *where]) == 0
    return json.loads(capsys.readouterr().out)


def test_deleted_records_do_not_count_as_lag(
    orders: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    lags = {"deleted": (3, 3), "at-start": (7, 3), "inside": (9, 1), "at-end": (10, 0)}
    for group, (committed, _) in lags.items():
        commit(orders, group, committed)
    commit(orders, "negative", -5)
    commit(orders, "ahead", 50)
    listed = {one["group"]: one["lag"] for one in said(capsys, orders, "list")["groups"]}
    expected = {group: lag for group, (_, lag) in lags.items()}
    assert listed == expected | {"negative": None, "ahead": 0}
    for group, lag in listed.items():
        assert said(capsys, orders, "describe", group)["lag"] == lag


@pytest.mark.parametrize(
    ("where", "after"),
    [
        (["--to-offset", "99"], END),
        (["--to-offset", "0"], START),
        (["--shift-by", "100"], END),
        (["--shift-by=-100"], START),
        (["--to-offset", "8"], 8),
        (["--to-datetime", "2100-01-01T00:00:00Z"], END),
        (["--to-datetime", "2001-01-01T00:00:00Z"], START),
    ],
)
def test_a_reset_offset_is_within_the_log(
    orders: Kafka, capsys: pytest.CaptureFixture[str], where: list[str], after: int
) -> None:
    commit(orders, "billing", 9)
    command = ["reset-offsets", "billing", "--topic", TOPIC, *where]
    for executed in (False, True):
        given = [*command, "--execute"] if executed else command
        (moved,) = said(capsys, orders, *given)["partitions"]
        assert (moved["before"], moved["after"]) == (9, after)
        (partition,) = said(capsys, orders, "describe", "billing")["partitions"]
        assert partition["committed"] == (after if executed else 9)


def test_a_reset_says_that_the_group_does_not_exist(
    orders: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    reset = ["reset-offsets", "new", "--topic", TOPIC, "--to-earliest"]
    for expected, given in ((True, []), (False, ["--execute"]), (False, [])):
        where = ("--bootstrap-server", orders.bootstrap_servers)
        assert main(["groups", *reset, *given, *where]) == 0
        assert ("no group 'new'" in capsys.readouterr().out) is expected


def test_offsets_of_a_share_group_are_reset_and_deleted(
    orders: Kafka, capsys: pytest.CaptureFixture[str]
) -> None:
    start = AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=9)
    topic = AlterShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[start])
    with RawClient(orders.port) as client:
        request = AlterShareGroupOffsetsRequest(group_id="workers", topics=[topic])
        assert client.call(request, 0, AlterShareGroupOffsetsResponse).error_code == 0
    command = ["reset-offsets", "workers", "--topic", TOPIC, "--to-earliest"]
    for executed in (False, True):
        given = [*command, "--execute"] if executed else command
        (moved,) = said(capsys, orders, *given)["partitions"]
        assert (moved["before"], moved["after"]) == (9, START)
        (partition,) = said(capsys, orders, "describe", "workers")["partitions"]
        assert partition["start"] == (START if executed else 9)
    where = ("--bootstrap-server", orders.bootstrap_servers)
    assert main(["groups", "delete-offsets", "workers", "--topic", f"{TOPIC}:0", *where]) == 2
    capsys.readouterr()
    (deleted,) = said(capsys, orders, "delete-offsets", "workers", "--topic", TOPIC)["deleted"]
    assert deleted == {"topic": TOPIC, "partition": 0, "committed": START}
    assert said(capsys, orders, "describe", "workers")["partitions"] == []
