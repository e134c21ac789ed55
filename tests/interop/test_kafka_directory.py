"""A data directory goes from Kohort to a real Kafka by its files, and back, three times.

Each broker is asked for everything before it stops, the next one after it has started, and both
have to say the same. In between each writes more, so that what is carried is not the first broker's
alone. A second Kafka then replicates what Kohort wrote.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kohort.broker.storage.errors import DataDirectoryLockedError
from kohort.broker.storage.lock import DataDirectoryLock
from tests.support import messages as m
from tests.support.brokers.kafka_server import EarlierKafkaServer, KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.java_transactions import LEVELS, JavaTransactions
from tests.support.clients.model import Record, content
from tests.support.network.wire import RawClient
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

GROUPS = 100
TOPICS = {
    "orders": {"retention.ms": "987654321"},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    "packed": {"segment.bytes": "1048576"},
    "transfers": {},
    "empty": {"cleanup.policy": "compact,delete"},
}
PARTITIONS = 3
AUTHORIZER = {
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
}
RULE = AclBinding(
    ResourceType.TOPIC,
    "orders",
    ResourcePatternType.LITERAL,
    "User:zoë",
    "*",
    AclOperation.READ,
    AclPermissionType.ALLOW,
)


def kohort(*arguments: str) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-m", "kohort.cli", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    answer: dict[str, Any] = json.loads(run.stdout)
    return answer


def fill(admin: AdminClient) -> None:
    """Topics, groups and all that is not records."""
    wanted = [NewTopic(name, PARTITIONS, 1, config=dict(of)) for name, of in TOPICS.items()]
    create_topics(admin, *wanted)
    credential = UserScramCredentialUpsertion(
        "zoë", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"a secret"
    )
    for future in admin.alter_user_scram_credentials([credential]).values():
        future.result(60)
    for future in admin.create_acls([RULE]).values():
        future.result(60)
    for number in range(GROUPS):
        commit(admin, f"group-{number}", "orders", number % PARTITIONS, number)


def commit(admin: AdminClient, group: str, topic: str, partition: int, offset: int) -> None:
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])
    for future in admin.alter_consumer_group_offsets([wanted]).values():
        future.result(60)


def write(server: ServerProcess, java: JavaProcess, mark: str) -> None:
    """Records of all kinds."""
    client = ConfluentClient(server.bootstrap)
    for partition in range(PARTITIONS):
        client.produce(
            "orders",
            [
                Record(f"{mark}-{n}".encode(), headers=(("h", b"v"),), partition=partition)
                for n in range(50)
            ],
            idempotent=True,
        )
        client.produce(
            "compacted",
            [Record(b"%d" % n, key=b"key-%d" % (n % 7), partition=partition) for n in range(100)],
            codec="zstd",
        )
        client.produce(
            "packed",
            [Record(bytes([n]) * 60_000, partition=partition) for n in range(60)],
            codec="lz4" if partition else "none",
        )
    producer = JavaTransactions(server.bootstrap, java, "mover")
    for number in range(4):
        producer.begin()
        producer.send("transfers", f"{mark}-{number}", partition=number % PARTITIONS)
        producer.send_offsets("group-0", [("orders", 0, 10 * (number + 1))])
        if number == 2:
            producer.abort()
        else:
            producer.commit()
    producer.close()


def all_of(server: ServerProcess) -> Mapping[str, object]:
    """Everything that clients can learn."""
    admin, client = admin_client(server.bootstrap), ConfluentClient(server.bootstrap)
    records = {
        (topic, level): sorted(
            (one.partition, one.offset, one.timestamp_ms, content(one))
            for one in client.read_to_end(topic, level)
        )
        for topic in TOPICS
        for level in LEVELS
    }
    offsets = {}
    for number in range(GROUPS):
        group = f"group-{number}"
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
        found = asked[group].result(60).topic_partitions
        offsets[group] = [(one.topic, one.partition, one.offset) for one in found]
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in TOPICS]
    described = {
        resource.name: {
            name: one.value
            for name, one in future.result(60).items()
            if not one.is_default and name != "min.insync.replicas"
        }
        for resource, future in admin.describe_configs(resources).items()
    }
    ids = {
        one["topic"]: one["topic_id"]
        for one in kohort("topics", "list", "--bootstrap-server", server.bootstrap)["topics"]
    }
    return {
        "records": records,
        "offsets": offsets,
        "configs": described,
        "users": kohort("users", "list", "--bootstrap-server", server.bootstrap),
        "rules": kohort("acl", "list", "--bootstrap-server", server.bootstrap),
        "ids": {name: ids[name] for name in TOPICS},
    }


def same(before: Mapping[str, object], after: Mapping[str, object]) -> None:
    for what in before:
        assert after[what] == before[what], what


@pytest.fixture
def brokers(tmp_path: Path) -> tuple[KohortServer, KafkaServer]:
    settings = {"log.cleaner.backoff.ms": "600000", "group.initial.rebalance.delay.ms": "0"}
    return (
        KohortServer(tmp_path, overrides=AUTHORIZER | settings),
        KafkaServer(tmp_path, overrides=AUTHORIZER | settings),
    )


def test_a_directory_goes_to_kafka_and_back_three_times_with_all_that_is_in_it(
    brokers: tuple[KohortServer, KafkaServer], java_clients: JavaProcess
) -> None:
    ours, theirs = brokers
    directory = str(ours.data)
    with ours:
        fill(admin_client(ours.bootstrap))
        write(ours, java_clients, "first")
        state = all_of(ours)
    for turn in range(3):
        kohort("export-kafka", directory, "--dry-run")
        assert kohort("export-kafka", directory)["left"] == []
        with theirs:
            same(state, all_of(theirs))
            with pytest.raises(DataDirectoryLockedError):
                DataDirectoryLock(theirs.data)
            write(theirs, java_clients, f"kafka-{turn}")
            commit(admin_client(theirs.bootstrap), "group-7", "orders", 1, 40 + turn)
            state = all_of(theirs)
        log = theirs.log_file.read_text()
        assert "-stray" not in log
        kohort("import-kafka", directory, "--dry-run")
        assert kohort("import-kafka", directory)["left"] == []
        with ours:
            same(state, all_of(ours))
            write(ours, java_clients, f"kohort-{turn}")
            commit(admin_client(ours.bootstrap), "group-8", "orders", 1, 60 + turn)
            state = all_of(ours)


def test_an_open_transaction_is_ended_by_the_broker_that_comes_next(
    brokers: tuple[KohortServer, KafkaServer], java_clients: JavaProcess
) -> None:
    ours, theirs = brokers
    with ours:
        fill(admin_client(ours.bootstrap))
        producer = JavaTransactions(ours.bootstrap, java_clients, "interrupted")
        producer.begin()
        producer.send("transfers", "never")
        producer.close()
    kohort("export-kafka", str(ours.data))
    with theirs:
        client = ConfluentClient(theirs.bootstrap)
        producer = JavaTransactions(theirs.bootstrap, java_clients, "interrupted")
        producer.begin()
        producer.send("transfers", "after")
        producer.commit()
        wait_until(
            lambda: (
                [one.value for one in client.read_to_end("transfers", "read_committed")]
                == [b"after"]
            ),
            "the committed record alone",
        )
        producer.close()


def test_neither_broker_starts_on_a_directory_that_the_other_runs_on(
    brokers: tuple[KohortServer, KafkaServer],
) -> None:
    ours, theirs = brokers
    with theirs, pytest.raises(RuntimeError, match="in use by another broker"):
        ours.start()
    with (
        DataDirectoryLock(theirs.data),
        pytest.raises(RuntimeError, match="Failed to acquire lock"),
    ):
        theirs.start()


def test_a_directory_for_kafka_3_9_is_served_by_it_then_by_a_later_one_and_comes_back(
    brokers: tuple[KohortServer, KafkaServer], java_clients: JavaProcess, tmp_path: Path
) -> None:
    ours, later = brokers
    earlier = EarlierKafkaServer(tmp_path, overrides=AUTHORIZER)
    directory = str(ours.data)
    with ours:
        fill(admin_client(ours.bootstrap))
        write(ours, java_clients, "first")
        state = all_of(ours)
    assert kohort("export-kafka", directory, "--kafka", "3.9")["left"] == []
    for theirs in (earlier, later):
        with theirs:
            same(state, all_of(theirs))
            write(theirs, java_clients, theirs.jars)
            commit(admin_client(theirs.bootstrap), "group-7", "orders", 1, 40)
            state = all_of(theirs)
        assert "-stray" not in theirs.log_file.read_text()
    assert kohort("import-kafka", directory)["left"] == []
    with ours:
        same(state, all_of(ours))


def test_a_later_kafka_starts_on_a_directory_for_3_9(
    brokers: tuple[KohortServer, KafkaServer],
) -> None:
    ours, theirs = brokers
    with ours:
        fill(admin_client(ours.bootstrap))
        state = all_of(ours)
    kohort("export-kafka", str(ours.data), "--kafka", "3.9")
    with theirs:
        same(state, all_of(theirs))


def test_a_second_kafka_replicates_what_kohort_wrote(
    brokers: tuple[KohortServer, KafkaServer], java_clients: JavaProcess, tmp_path: Path
) -> None:
    ours, theirs = brokers
    with ours:
        fill(admin_client(ours.bootstrap))
        write(ours, java_clients, "first")
        before = all_of(ours)
    kohort("export-kafka", str(ours.data))
    voters = theirs.properties["controller.quorum.voters"]
    second = KafkaServer(
        tmp_path / "second",
        overrides={
            **AUTHORIZER,
            "process.roles": "broker",
            "node.id": "2",
            "controller.quorum.voters": voters,
        },
    )
    second.properties["listeners"] = f"PLAINTEXT://{second.bootstrap}"
    meta = (ours.data / "meta.properties").read_text()
    (cluster_id,) = (
        line.partition("=")[2] for line in meta.splitlines() if line.startswith("cluster.id=")
    )
    second.data.mkdir(parents=True)
    (second.data / "meta.properties").write_text(f"version=1\ncluster.id={cluster_id}\nnode.id=2\n")
    with theirs, second:
        reassign(theirs.port)
        admin = admin_client(theirs.bootstrap)

        def in_sync() -> bool:
            topics = admin.list_topics(timeout=30).topics
            return all(
                sorted(partition.isrs) == [1, 2]
                for name in TOPICS
                for partition in topics[name].partitions.values()
            )

        wait_until(in_sync, "both replicas to be in sync", timeout_s=120)
    assert (second.data / "orders-0").is_dir()
    for topic in ("orders", "packed"):
        for partition in range(PARTITIONS):
            name = f"{topic}-{partition}"
            assert log_bytes(second.data / name) == log_bytes(ours.data / name)
    assert before["records"]


def log_bytes(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))


def reassign(port: int) -> None:
    """Both brokers have all partitions."""
    request = m.AlterPartitionReassignmentsRequest(
        timeout_ms=30_000,
        topics=[
            m.ReassignableTopic(
                name=name,
                partitions=[
                    m.ReassignablePartition(partition_index=index, replicas=[1, 2])
                    for index in range(PARTITIONS)
                ],
            )
            for name in TOPICS
        ],
    )
    with RawClient(port) as client:
        answer = client.call(request, 1, m.AlterPartitionReassignmentsResponse)
    assert answer.error_code == 0, answer
