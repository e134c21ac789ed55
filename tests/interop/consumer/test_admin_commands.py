"""`kohort topics`, `kohort users` and what `kohort groups` changes, beside either broker."""

import uuid
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.interop.consumer.members import Topics
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.processes.commands import Said, password_descriptor, said_here
from tests.support.waiting import wait_until

Kohort: TypeAlias = Callable[..., Said[str]]


@pytest.fixture
def kohort(any_broker: ServerProcess, capfd: pytest.CaptureFixture[str]) -> Kohort:
    """Run a command against the broker."""

    def run(*arguments: str) -> Said[str]:
        where = ("--bootstrap-server", any_broker.bootstrap, "--timeout", "60")
        return said_here(capfd, *arguments, *where)

    return run


@pytest.fixture
def name(kohort: Kohort) -> Iterator[str]:
    """Name of a topic that does not exist yet."""
    made = f"commands-{uuid.uuid4().hex[:8]}"
    yield made
    kohort("topics", "delete", made, "--if-exists")


def described(kohort: Kohort, name: str, is_so: Callable[[Any], bool] = bool) -> Any:  # noqa: ANN401
    """The topic, once that is so: a real Kafka answers a change when its controller has it, a
    moment before its broker does.
    """
    told: list[Any] = []

    def look() -> bool:
        said = kohort("topics", "describe", name, "--json")
        told[:] = said.json["topics"] if said.code == 0 else []
        return bool(told) and is_so(told[0])

    wait_until(look, lambda: f"{name} as it is to be: {told}")
    return told[0]


def commit(bootstrap: str, group: str, *offsets: TopicPartition) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})

    def is_stored() -> bool:
        try:
            consumer.commit(offsets=list(offsets), asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.NOT_COORDINATOR:
                raise
            return False
        return True

    wait_until(is_stored, "the coordinator, which a Kafka elects after it has created its topic")
    consumer.close()


def test_status_shows_brokers_disks_and_partitions(
    any_broker: ServerProcess, kohort: Kohort, topics: Topics
) -> None:
    topic = topics.create(3)
    topics.fill(topic, [b"x" * 1_000])
    status = kohort("status", "--json").json
    (broker,) = status["brokers"]
    assert broker["address"] == any_broker.bootstrap
    (directory,) = broker["directories"]
    assert directory["error"] == 0
    assert directory["data_bytes"] >= 1_000
    assert 0 < directory["free_bytes"] < directory["volume_bytes"]
    assert status["partitions"] >= 3
    assert status["without_leader"] == status["under_replicated"] == []
    assert status["cluster_id"] in kohort("status").out


class TestTopics:
    def test_a_topic_lives_from_create_to_delete(self, kohort: Kohort, name: str) -> None:
        made = kohort("topics", "create", name, "--partitions", "3", "--config", "retention.ms=5")
        assert made == (0, f"{name}: created\n", "")
        described(kohort, name)

        listed = kohort("topics", "list", "--json").json["topics"]
        found = next(one for one in listed if one["topic"] == name)
        assert (found["partitions"], found["replication_factor"]) == (3, 1)
        assert not found["internal"]

        told = described(kohort, name, lambda told: bool(told["configs"]))
        assert told["configs"] == {"retention.ms": "5"}
        assert told["topic_id"] == found["topic_id"]
        assert [one["partition"] for one in told["partitions"]] == [0, 1, 2]

        def offsets() -> set[tuple[int, int]]:
            again = kohort("topics", "describe", name, "--json").json["topics"][0]
            return {(one["start"], one["end"]) for one in again["partitions"]}

        # A real Kafka answers when its controller has the topic, a moment before its leaders do.
        wait_until(lambda: offsets() == {(0, 0)}, "the leaders tell their offsets")

        assert kohort("topics", "delete", name) == (0, f"{name}: deleted\n", "")
        wait_until(lambda: kohort("topics", "describe", name).code == 1, "it is gone")
        assert "kohort topics list" in kohort("topics", "describe", name).err

    def test_configs_and_partitions_are_altered(self, kohort: Kohort, name: str) -> None:
        kohort("topics", "create", name, "--partitions", "1", "--config", "retention.ms=5")
        described(kohort, name, lambda told: "retention.ms" in told["configs"])
        altered = kohort(
            *("topics", "alter", name, "--partitions", "2", "--config", "segment.bytes=1048576"),
            *("--delete-config", "retention.ms"),
        )
        assert altered.code == 0, altered.err
        told = described(kohort, name, lambda told: len(told["partitions"]) == 2)
        assert len(told["partitions"]) == 2
        told = described(kohort, name, lambda told: "retention.ms" not in told["configs"])
        assert told["configs"] == {"segment.bytes": "1048576"}

    def test_a_dry_run_checks_and_changes_nothing(self, kohort: Kohort, name: str) -> None:
        assert kohort("topics", "create", name, "--dry-run").out == f"{name}: could be created\n"
        refused = kohort("topics", "create", name, "--dry-run", "--config", "retention.ms=soon")
        assert refused.code == 4
        assert "INVALID_CONFIG" in refused.err
        assert kohort("topics", "describe", name).code == 1
        kohort("topics", "create", name, "--partitions", "1")
        described(kohort, name)
        assert kohort("topics", "alter", name, "--partitions", "5", "--dry-run").code == 0
        assert len(described(kohort, name)["partitions"]) == 1

    def test_one_that_exists_is_an_error_unless_that_is_fine(
        self, kohort: Kohort, name: str
    ) -> None:
        kohort("topics", "create", name)
        again = kohort("topics", "create", name)
        assert again.code == 5
        assert "TOPIC_ALREADY_EXISTS" in again.err
        assert kohort("topics", "create", name, "--if-not-exists").out == f"{name}: exists\n"

    def test_those_of_a_pattern_and_all_are_described(self, kohort: Kohort, topics: Topics) -> None:
        first, second = topics.create(1), topics.create(1)

        def names(*texts: str) -> list[str]:
            listed = kohort("topics", "describe", *texts, "--json").json["topics"]
            return [topic["topic"] for topic in listed]

        assert names(first[:-1] + f"[{first[-1]}]", second) == [first, second]
        assert {first, second} <= set(names())
        assert kohort("topics", "describe", f"no-{first}*").code == 1

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


class TestConfigs:
    def test_those_of_a_topic_are_set_shown_and_deleted(
        self, any_broker: ServerProcess, kohort: Kohort, topics: Topics
    ) -> None:
        topic = topics.create(1)

        def configs(*names: str) -> dict[str, tuple[str, str]]:
            entries = kohort("config", "get", *names, "--topic", topic, "--json").json["configs"]
            return {entry["name"]: (entry["value"], entry["source"]) for entry in entries}

        assert kohort("config", "set", "retention.ms=5", "--topic", topic, "--dry-run").code == 0
        assert configs() == {}
        assert kohort("config", "set", "retention.ms=5", "--topic", topic).code == 0
        wait_until(lambda: configs() == {"retention.ms": ("5", "topic")}, "the config is set")
        assert kohort("config", "delete", "retention.ms", "--topic", topic).code == 0
        wait_until(lambda: configs() == {}, "the config is reset")
        assert configs("retention.ms") == {"retention.ms": ("604800000", "default")}
        refused = kohort("config", "set", "retention.ms=soon", "--topic", topic)
        assert refused.code == 4
        assert "INVALID_CONFIG" in refused.err
        assert kohort("config", "get", "retention.mz", "--topic", topic).code == 1
        assert kohort("config", "get", "--topic", f"no-{topic}").code == 1

    def test_those_of_a_broker_come_before_those_of_all(self, kohort: Kohort) -> None:
        name = "log.cleaner.threads"

        def effective() -> tuple[str, str]:
            (entry,) = kohort("config", "get", name, "--json").json["configs"]
            return entry["value"], entry["source"]

        assert kohort("config", "set", f"{name}=2").code == 0
        wait_until(lambda: effective() == ("2", "all brokers"), "the default is set")
        assert kohort("config", "set", f"{name}=1", "--broker", "1").code == 0
        wait_until(lambda: effective() == ("1", "broker"), "the broker's is set")
        assert kohort("config", "delete", name, "--broker", "1").code == 0
        assert kohort("config", "delete", name).code == 0
        wait_until(lambda: effective() == ("1", "default"), "both are reset")
        assert kohort("config", "get", "--broker", "77").code == 1

    def test_passwords_are_not_printed(self, kohort: Kohort) -> None:
        secret = "listener.name.plaintext.ssl.key.password=clear-text"
        said = kohort("config", "set", secret, "--broker", "1", "--dry-run")
        assert (said.code, "clear-text" in said.out) == (0, False)


class TestTrim:
    def test_records_before_an_offset_or_a_time_are_deleted(
        self, any_broker: ServerProcess, kohort: Kohort, topics: Topics
    ) -> None:
        topic = topics.create(2)
        producer = Producer({"bootstrap.servers": any_broker.bootstrap})
        for partition in range(2):
            for number in range(10):
                time_ms = 1_000_000 + number
                producer.produce(topic, b"x", partition=partition, timestamp=time_ms)
        producer.flush(60)

        def starts() -> list[int]:
            (described_topic,) = kohort("topics", "describe", topic, "--json").json["topics"]
            return [partition["start"] for partition in described_topic["partitions"]]

        def trim(*how: str) -> list[tuple[int, int]]:
            partitions = kohort("topics", "trim", *how, "--json").json["partitions"]
            return [(partition["before"], partition["after"]) for partition in partitions]

        assert trim(topic, "--to-offset", "4", "--dry-run") == [(0, 4), (0, 4)]
        assert starts() == [0, 0]
        assert trim(f"{topic}:1", "--to-offset", "4") == [(0, 4)]
        assert trim(topic, "--to-datetime", "1970-01-01T00:16:40.003Z") == [(0, 3), (4, 4)]
        assert starts() == [3, 4]
        assert trim(topic, "--by-duration", "1d") == [(3, 10), (4, 10)]
        assert trim(topic, "--to-latest") == [(10, 10), (10, 10)]
        assert kohort("topics", "trim", f"{topic}:2", "--to-latest").code == 1

    def test_a_compacted_topic_is_refused(
        self, any_broker: ServerProcess, kohort: Kohort, name: str
    ) -> None:
        compacted = ("--partitions", "1", "--config", "cleanup.policy=compact")
        kohort("topics", "create", name, *compacted)
        described(kohort, name)
        producer = Producer({"bootstrap.servers": any_broker.bootstrap})
        producer.produce(name, b"value", b"key")
        producer.flush(60)
        refused = kohort("topics", "trim", name, "--to-latest")
        assert refused.code == 4
        assert "POLICY_VIOLATION" in refused.err


class TestOffsets:
    def test_those_of_one_topic_are_deleted(
        self, any_broker: ServerProcess, kohort: Kohort, topics: Topics, group: str
    ) -> None:
        kept, gone = topics.create(1), topics.create(2)
        places = [TopicPartition(kept, 0, 4), *(TopicPartition(gone, n, n) for n in range(2))]
        commit(any_broker.bootstrap, group, *places)

        def committed() -> set[tuple[str, int]]:
            partitions = kohort("groups", "describe", group, "--json").json["partitions"]
            return {(place["topic"], place["partition"]) for place in partitions}

        deleted = kohort("groups", "delete-offsets", group, "--topic", f"{gone}:1", "--json").json
        assert deleted["deleted"] == [{"topic": gone, "partition": 1, "committed": 1}]
        assert committed() == {(kept, 0), (gone, 0)}
        assert kohort("groups", "delete-offsets", group, "--topic", gone).code == 0
        assert committed() == {(kept, 0)}
        again = kohort("groups", "delete-offsets", group, "--topic", gone)
        assert again.code == 1
        assert "has no offsets" in again.err

    def test_those_of_a_topic_that_members_read_stay(
        self, any_broker: ServerProcess, kohort: Kohort, topics: Topics, group: str
    ) -> None:
        topic = topics.create(1)
        consumer = Consumer({"bootstrap.servers": any_broker.bootstrap, "group.id": group})
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        refused = kohort("groups", "delete-offsets", group, "--topic", topic)
        consumer.close()
        assert refused.code == 4
        assert "members read the topic" in refused.err

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
        assert refused.code == 4
        assert "it has members; stop them first" in refused.err
        stays = kohort("groups", "delete", group)
        assert stays.code == 4
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
        assert "invalid time" in soon.err


def test_a_group_without_members_is_deleted(
    any_broker: ServerProcess, kohort: Kohort, topics: Topics, group: str
) -> None:
    commit(any_broker.bootstrap, group, TopicPartition(topics.create(1), 0, 0))
    assert kohort("groups", "delete", group) == (0, f"{group}: deleted\n", "")
    again = kohort("groups", "delete", group)
    assert again.code == 1
    assert "there is no group" in again.err


def test_groups_of_a_pattern_and_all_are_described(
    any_broker: ServerProcess, kohort: Kohort, topics: Topics, group: str
) -> None:
    names = [f"{group}-{number}" for number in range(2)]
    for name in names:
        commit(any_broker.bootstrap, name, TopicPartition(topics.create(1), 0, 0))

    def ids(*texts: str) -> list[str]:
        groups = kohort("groups", "describe", *texts, "--json").json["groups"]
        return [described_group["group"] for described_group in groups]

    assert ids(f"{group}-*") == names
    assert set(names) <= set(ids())
    assert kohort("groups", "describe", f"no-{group}*").code == 1


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


def test_describe_tells_of_members_partitions_and_lag(
    any_broker: ServerProcess, kohort: Kohort, topics: Topics, group: str
) -> None:
    topic = topics.create(3)
    for partition in range(3):
        topics.fill(topic, [b"x"] * 5, partition)
    consumer = Consumer(
        {
            "bootstrap.servers": any_broker.bootstrap,
            "group.id": group,
            "client.id": "reader",
            "partition.assignment.strategy": "roundrobin",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    while len(consumer.assignment()) < 3:
        consumer.poll(0.1)
    positions = [TopicPartition(topic, 0, 2), TopicPartition(topic, 2, 5)]
    consumer.commit(offsets=positions, asynchronous=False)

    said = kohort("groups", "describe", group)
    data = kohort("groups", "describe", group, "--json").json
    consumer.close()

    head, _, _, member, _, _, *partitions = said.out.splitlines()
    assert head.startswith(f"{group}: Stable, assignor roundrobin, 1 member, lag 3 and unknown")
    member_id = member.split()[0]
    assert member_id.startswith("reader-")
    assert member.split()[1:] == ["-", "127.0.0.1", f"{topic}:0-2"]
    assert [line.split() for line in partitions] == [
        [topic, "0", "2", "5", "3", member_id],
        [topic, "1", "-", "5", "-", member_id],
        [topic, "2", "5", "5", "0", member_id],
    ]
    assert (data["state"], data["lag"], data["lag_unknown_partitions"]) == ("Stable", 3, 1)
    assert data["members"][0]["assignment"] == {topic: [0, 1, 2]}
    assert data["partitions"][0]["lag"] == 3


class TestGroupsOfTheNewProtocol:
    """KIP-848: the same commands tell of them."""

    def test_describe_tells_members_partitions_and_lag(
        self, any_broker: ServerProcess, kohort: Kohort, name: str
    ) -> None:
        kohort("topics", "create", name, "--partitions", "2")
        producer = Producer({"bootstrap.servers": any_broker.bootstrap})
        for partition in range(2):
            producer.produce(name, b"value", partition=partition)
        producer.flush()
        consumer = Consumer(
            {
                "bootstrap.servers": any_broker.bootstrap,
                "group.id": name,
                "group.protocol": "consumer",
                "client.id": "new-member",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([name])
        wait_until(lambda: consumer.poll(0.1) is not None, "a record to be read")
        consumer.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)

        told = kohort("groups", "describe", name, "--json").json
        lines = kohort("groups", "describe", name).out.splitlines()
        listed = kohort("groups", "list", "--json").json["groups"]
        consumer.close()

        assert (told["type"], told["state"], told["protocol"]) == ("consumer", "Stable", "uniform")
        (member,) = told["members"]
        assert member["client_id"] == "new-member"
        assert member["assignment"] == member["target"] == {name: [0, 1]}
        assert member["epoch"] == told["epoch"]
        assert [(one["committed"], one["end"], one["lag"]) for one in told["partitions"]] == [
            (1, 1, 0),
            (None, 1, None),
        ]
        assert [row["members"] for row in listed if row["group"] == name] == [1]
        assert f"consumer protocol, epoch {told['epoch']}, 1 member" in lines[0]

    def test_a_group_that_there_is_not_is_none_of_either_protocol(self, kohort: Kohort) -> None:
        gone = kohort("groups", "describe", "nobody-has-it")
        assert gone.code == 1
        assert "there is no group" in gone.err


class TestUsers:
    def test_a_user_of_both_mechanisms_lives_from_add_to_remove(self, kohort: Kohort) -> None:
        user = f"user-{uuid.uuid4().hex[:8]}"

        def with_password(command: str) -> Said[str]:
            with password_descriptor("a password") as number:
                return kohort("users", command, user, "--password-fd", number)

        def mechanisms() -> list[str]:
            users = kohort("users", "list", "--json").json["users"]
            return [name for one in users if one["name"] == user for name in one["iterations"]]

        both = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        added = with_password("add")
        assert (added.code, added.err) == (0, "")
        wait_until(lambda: mechanisms() == both, lambda: f"both mechanisms: {mechanisms()}")
        changed = with_password("password")
        assert (changed.code, changed.err) == (0, "")
        removed = kohort("users", "remove", user)
        assert (removed.code, removed.err) == (0, "")
        wait_until(lambda: mechanisms() == [], lambda: f"no mechanism: {mechanisms()}")
