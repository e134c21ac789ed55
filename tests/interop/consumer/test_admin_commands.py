"""`kohort topics` and what `kohort groups` changes, as users run them, beside either broker."""

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kohort.cli import main
from tests.interop.consumer.members import Topics
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.model import wait_until


class Said(NamedTuple):
    """What a command has printed, and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:  # noqa: ANN401
        assert self.code == 0, self.err
        return json.loads(self.out)


Kohort: TypeAlias = Callable[..., Said]


@pytest.fixture
def kohort(any_broker: ServerProcess, capfd: pytest.CaptureFixture[str]) -> Kohort:
    """Run a command against the broker."""

    def run(*arguments: str) -> Said:
        given = [*arguments, "--bootstrap-server", any_broker.bootstrap, "--timeout", "60"]
        capfd.readouterr()
        try:
            code = main(given)
        except SystemExit as ended:
            code = int(ended.code or 0)
        return Said(code, *capfd.readouterr())

    return run


@pytest.fixture
def name(kohort: Kohort) -> Iterator[str]:
    """Name of a topic that does not exist yet."""
    made = f"commands-{uuid.uuid4().hex[:8]}"
    yield made
    kohort("topics", "delete", made, "--if-exists")


def commit(bootstrap: str, group: str, *offsets: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=list(offsets), asynchronous=False)
    consumer.close()


class TestTopics:
    def test_a_topic_lives_from_create_to_delete(self, kohort: Kohort, name: str) -> None:
        made = kohort("topics", "create", name, "--partitions", "3", "--config", "retention.ms=5")
        assert made == (0, f"{name}: created\n", "")

        listed = kohort("topics", "list", "--json").json["topics"]
        found = next(one for one in listed if one["topic"] == name)
        assert (found["partitions"], found["replication_factor"]) == (3, 1)
        assert not found["internal"]

        told = kohort("topics", "describe", name, "--json").json["topics"][0]
        assert told["configs"] == {"retention.ms": "5"}
        assert told["topic_id"] == found["topic_id"]
        assert [one["partition"] for one in told["partitions"]] == [0, 1, 2]

        def offsets() -> set[tuple[int, int]]:
            again = kohort("topics", "describe", name, "--json").json["topics"][0]
            return {(one["start"], one["end"]) for one in again["partitions"]}

        # A real Kafka answers when its controller has the topic, a moment before its leaders do.
        wait_until(lambda: offsets() == {(0, 0)}, "the leaders tell their offsets")

        assert kohort("topics", "delete", name) == (0, f"{name}: deleted\n", "")
        gone = kohort("topics", "describe", name)
        assert gone.code == 1
        assert "kohort topics list" in gone.err

    def test_configs_and_partitions_are_altered(self, kohort: Kohort, name: str) -> None:
        kohort("topics", "create", name, "--partitions", "1", "--config", "retention.ms=5")
        altered = kohort(
            *("topics", "alter", name, "--partitions", "2", "--config", "segment.bytes=1048576"),
            *("--delete-config", "retention.ms"),
        )
        assert altered.code == 0, altered.err
        told = kohort("topics", "describe", name, "--json").json["topics"][0]
        assert told["configs"] == {"segment.bytes": "1048576"}
        assert len(told["partitions"]) == 2

    def test_a_dry_run_checks_and_changes_nothing(self, kohort: Kohort, name: str) -> None:
        assert kohort("topics", "create", name, "--dry-run").out == f"{name}: could be created\n"
        refused = kohort("topics", "create", name, "--dry-run", "--config", "retention.ms=soon")
        assert refused.code == 3
        assert "INVALID_CONFIG" in refused.err
        assert kohort("topics", "describe", name).code == 1
        kohort("topics", "create", name, "--partitions", "1")
        assert kohort("topics", "alter", name, "--partitions", "5", "--dry-run").code == 0
        told = kohort("topics", "describe", name, "--json").json["topics"][0]
        assert len(told["partitions"]) == 1

    def test_one_that_exists_is_an_error_unless_that_is_fine(
        self, kohort: Kohort, name: str
    ) -> None:
        kohort("topics", "create", name)
        again = kohort("topics", "create", name)
        assert again.code == 3
        assert "TOPIC_ALREADY_EXISTS" in again.err
        assert kohort("topics", "create", name, "--if-not-exists").out == f"{name}: exists\n"

    def test_offsets_and_bytes_of_a_topic_are_told(
        self, any_broker: ServerProcess, kohort: Kohort, topics: Topics
    ) -> None:
        topic = topics.create(1)
        topics.fill(topic, [b"one", b"two"])
        told = kohort("topics", "describe", topic, "--json").json["topics"][0]["partitions"][0]
        assert (told["start"], told["end"]) == (0, 2)
        assert told["size_bytes"] > 0
        lines = kohort("topics", "describe", topic).out.splitlines()
        assert lines[0].startswith(f"{topic}: 1 partition, 1 replica, id ")
        assert lines[2].split() == ["PARTITION", "LEADER", "REPLICAS", "IN", "SYNC", "START", "END",
                                    "BYTES"]  # fmt: skip


class TestOffsets:
    def test_they_are_shown_first_and_set_when_that_is_wanted(
        self, any_broker: ServerProcess, kohort: Kohort, topics: Topics, group: str
    ) -> None:
        topic = topics.create(2)
        producer = Producer({"bootstrap.servers": any_broker.bootstrap})
        for number in range(10):
            producer.produce(topic, b"%d" % number, partition=0, timestamp=1_000_000 + number)
        producer.flush(60)
        commit(any_broker.bootstrap, group, TopicPartition(topic, 0, 4))

        def reset(*how: str) -> Any:  # noqa: ANN401
            return kohort("groups", "reset-offsets", group, *how, "--json").json

        def after(*how: str) -> list[int]:
            return [one["after"] for one in reset("--topic", topic, *how)["partitions"]]

        shown = reset("--all-topics", "--to-earliest")
        assert not shown["executed"]
        assert shown["partitions"] == [
            {"topic": topic, "partition": 0, "before": 4, "after": 0, "lag": 10}
        ]
        assert after("--to-latest") == [10, 0]
        assert after("--to-offset", "99") == [10, 0]
        assert after("--to-datetime", "1970-01-01T00:16:40.007+00:00") == [7, 0]
        assert after("--by-duration", "P1D") == [10, 0]
        assert reset("--topic", f"{topic}:0", "--shift-by", "-3")["partitions"][0]["after"] == 1
        assert reset("--all-topics", "--to-current")["partitions"][0]["after"] == 4

        done = kohort(
            "groups", "reset-offsets", group, "--topic", f"{topic}:0", "--to-offset", "6",
            "--execute",
        )  # fmt: skip
        assert done.code == 0, done.err
        assert done.out.endswith(f"{group}: set.\n")
        told = kohort("groups", "describe", group, "--json").json
        assert [one["committed"] for one in told["partitions"]] == [6]

    def test_a_group_with_members_is_left_alone(
        self, any_broker: ServerProcess, kohort: Kohort, topics: Topics, group: str
    ) -> None:
        topic = topics.create(1)
        consumer = Consumer({"bootstrap.servers": any_broker.bootstrap, "group.id": group})
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        refused = kohort(
            "groups", "reset-offsets", group, "--topic", topic, "--to-latest", "--execute"
        )
        assert refused.code == 3
        assert "it has members; stop them first" in refused.err
        stays = kohort("groups", "delete", group)
        assert stays.code == 3
        assert "it has members" in stays.err
        consumer.close()

    def test_what_cannot_be_meant_is_told(self, kohort: Kohort, topics: Topics, group: str) -> None:
        topic = topics.create(1)
        none = kohort("groups", "reset-offsets", group, "--all-topics", "--to-earliest")
        assert none.code == 1
        assert "has no offsets" in none.err
        shift = kohort("groups", "reset-offsets", group, "--topic", topic, "--shift-by", "1")
        assert shift.code == 2
        beyond = kohort("groups", "reset-offsets", group, "--topic", f"{topic}:7", "--to-latest")
        assert beyond.code == 1
        assert "has no partition 7" in beyond.err
        soon = kohort("groups", "reset-offsets", group, "--topic", topic, "--to-datetime", "soon")
        assert soon.code == 2
        assert "is no time" in soon.err


def test_a_group_without_members_is_deleted(
    any_broker: ServerProcess, kohort: Kohort, topics: Topics, group: str
) -> None:
    commit(any_broker.bootstrap, group, TopicPartition(topics.create(1), 0, 0))
    assert kohort("groups", "delete", group) == (0, f"{group}: deleted\n", "")
    again = kohort("groups", "delete", group)
    assert again.code == 1
    assert "there is no group" in again.err


def test_groups_are_listed_with_members_lag_and_rebalances(
    any_broker: ServerProcess, kohort: Kohort, topics: Topics, group: str
) -> None:
    topic = topics.create(2)
    topics.fill(topic, [b"x"] * 5)
    consumer = Consumer(
        {
            "bootstrap.servers": any_broker.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    while len(consumer.assignment()) < 2:
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0))[1]

    def listed() -> dict[str, Any]:
        groups = kohort("groups", "list", "--json").json["groups"]
        return next(one for one in groups if one["group"] == group)

    is_kohort = isinstance(any_broker, KohortServer)
    if is_kohort:
        wait_until(lambda: listed()["rebalances_in_last_hour"] == 1, "the rebalance is stored")
    found = listed()
    assert (found["state"], found["members"], found["lag"]) == ("Stable", 1, end)
    assert found["rebalances_in_last_hour"] == (1 if is_kohort else None)
    line = next(one for one in kohort("groups", "list").out.splitlines() if one.startswith(group))
    assert line.split()[1:] == [
        *("Stable", "classic", "1", str(end), "1" if is_kohort else "-", "consumer")
    ]
    consumer.close()
