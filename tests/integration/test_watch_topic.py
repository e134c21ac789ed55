"""The topic in which watchers store the history that they make."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kohort.admin.cluster import Cluster
from kohort.admin.configs import Kind, Resource, described
from kohort.admin.history import read_records
from kohort.admin.offsets import END, checked_offsets
from kohort.admin.topics import create_topic
from kohort.cli import main
from kohort.client.net.address import Address
from kohort.testing import Kafka
from kohort.watch.history_topic import WAITING_MAX, HistoryTopic
from kohort.watch.membership import Membership
from tests.support.waiting import wait_until

TOPIC = "watched"
TIMEOUT_S = 30.0

Json = dict[str, Any]


def record(sequence: int, offset: int, group: str = "g") -> Json:
    return {
        "schema": 1,
        "kind": "rebalance",
        "group": group,
        "sequence": sequence,
        "generation": sequence,
        "started_at_ms": 1_000 * sequence,
        "timeline": {"finished_ms": 500},
        "observed": {"by": ["records"], "partition": 0, "offset": offset},
    }


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    with Cluster([Address("127.0.0.1", kafka.port)], TIMEOUT_S) as cluster:
        yield cluster


def opened(cluster: Cluster, membership: Membership | None = None) -> HistoryTopic:
    return HistoryTopic(cluster, TOPIC, membership, timeout_s=TIMEOUT_S)


def write(topic: HistoryTopic, *records: Json) -> None:
    for one in records:
        topic.offer(one)
    topic.flush()


def stored(cluster: Cluster) -> list[Json]:
    end = checked_offsets(cluster, {(TOPIC, 0): END})[TOPIC, 0]
    return [json.loads(one.value or b"") for one in read_records(cluster, TOPIC, 0, 0, end)]


@contextmanager
def member(kafka: Kafka) -> Iterator[Membership]:
    with Membership(TOPIC, {"bootstrap_servers": kafka.bootstrap_servers}) as membership:
        yield membership


def test_records_are_stored_as_a_broker_stores_its_own(cluster: Cluster) -> None:
    write(opened(cluster), record(3, 7, "billing"))
    (one,) = read_records(cluster, TOPIC, 0, 0, 1)
    assert one.key == b"billing"
    assert dict(one.headers) == {
        "schema": b"1",
        "kind": b"rebalance",
        "sequence": b"3",
        "generation": b"3",
    }
    assert one.timestamp == 3_500
    configs = described(
        cluster, cluster.controller(), Resource(Kind.TOPIC, TOPIC), None, "the topic"
    )
    values = {config.name: config.value for config in configs}
    assert values["cleanup.policy"] == "delete"
    assert values["retention.ms"] == str(30 * 24 * 3_600 * 1_000)


def test_a_watcher_adds_what_others_have_not_written(cluster: Cluster) -> None:
    first, second = opened(cluster), opened(cluster)
    write(first, record(1, 5), record(2, 6))
    write(second, record(1, 5), record(2, 6), record(3, 7))
    write(first, record(3, 7), record(4, 8))
    write(opened(cluster), record(3, 7), record(4, 8), record(5, 9))
    assert stored(cluster) == [record(number, number + 4) for number in range(1, 6)]


def test_one_that_stands_by_writes_what_is_missing_when_it_takes_over(
    kafka: Kafka, cluster: Cluster
) -> None:
    opened(cluster)
    with member(kafka) as second_membership:
        with member(kafka) as first_membership:
            memberships = (first_membership, second_membership)
            wait_until(lambda: sum(one.is_writer for one in memberships) == 1, "a writer")
            writing = opened(cluster, next(one for one in memberships if one.is_writer))
            standing_by = opened(cluster, next(one for one in memberships if not one.is_writer))
            write(standing_by, record(1, 5), record(2, 6), record(3, 7))
            assert stored(cluster) == []
            write(writing, record(1, 5), record(2, 6))
            standing_by.flush()
            assert stored(cluster) == [record(1, 5), record(2, 6)]
        wait_until(lambda: second_membership.is_writer, "its turn")
        taken_over = opened(cluster, second_membership)
        write(taken_over, record(2, 6), record(3, 7))
    assert stored(cluster) == [record(1, 5), record(2, 6), record(3, 7)]


def test_one_that_stands_by_does_not_read_on_without_end(kafka: Kafka, cluster: Cluster) -> None:
    opened(cluster)
    with member(kafka) as writer:
        wait_until(lambda: writer.is_writer, "a writer")
        with member(kafka) as other:
            memberships = (writer, other)
            wait_until(lambda: sum(one.is_writer for one in memberships) == 1, "a writer")
            standing_by = opened(cluster, next(one for one in memberships if not one.is_writer))
            records = [record(number, number) for number in range(1, WAITING_MAX + 1)]
            write(standing_by, *records)
            assert standing_by.is_full
            assert TOPIC in (standing_by.trouble or "")
            write(opened(cluster), *records)
            standing_by.flush()
            assert not standing_by.is_full


def test_a_topic_of_the_brokers_is_refused(
    kafka: Kafka, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    create_topic(cluster, "two", partitions=2, configs={})
    command = ["watch", "--bootstrap-server", kafka.bootstrap_servers, "--history"]
    assert main([*command, "topic"]) == 2
    assert "brokers" in capsys.readouterr().err
    assert main([*command, "topic:two"]) == 2
    assert "2 partitions" in capsys.readouterr().err
