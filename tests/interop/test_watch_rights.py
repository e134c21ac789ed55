"""``kohort watch`` by a user who may not read __consumer_offsets of a real Kafka, or who may not
see its groups, and has its log.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from tests.support.brokers.secure_kafka import PASSWORD, USER, SecureKafka
from tests.support.clients.confluent_client import admin_client, create_topics
from tests.support.clients.login import Login
from tests.support.waiting import wait_until

TOPIC = "orders"
OVERRIDES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Clients of the listener without security, and Kafka itself.
    "super.users": "User:ANONYMOUS",
    "group.initial.rebalance.delay.ms": "0",
}
MEMBER = """
import signal, sys
from confluent_kafka import Consumer
server, group, name, protocol = sys.argv[1:]
consumer = Consumer({
    "bootstrap.servers": server, "group.id": group, "client.id": name, "group.protocol": protocol,
})
consumer.subscribe(["orders"])
running = [True]
signal.signal(signal.SIGTERM, lambda *_: running.clear())
while running:
    consumer.poll(0.1)
consumer.close()
"""


class LoggingKafka(SecureKafka):
    """It logs what its coordinator does."""

    extra_java_options = ("-Dkohort.test.log.level=INFO", "-Duser.timezone=UTC")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with LoggingKafka(tmp_path_factory.mktemp("rights"), overrides=OVERRIDES) as kafka:
        create_topics(admin_client(kafka.bootstrap), NewTopic(TOPIC, 4, 1))
        # Kafka creates __consumer_offsets for the first group.
        with member(kafka, "first", "a", "classic"):
            wait_for(kafka, "first", 1)
        yield kafka


Right = tuple[ResourceType, str, AclOperation]
DESCRIBE_TOPIC: Right = (ResourceType.TOPIC, TOPIC, AclOperation.DESCRIBE)
READ_OFFSETS: Right = (ResourceType.TOPIC, "__consumer_offsets", AclOperation.READ)


@contextmanager
def allowed(kafka: SecureKafka, *rights: Right) -> Iterator[None]:
    """Give the user these rights."""
    user, pattern, allow = f"User:{USER}", ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    admin = admin_client(kafka.bootstrap)
    rules = [(kind, name, pattern, user, "*", operation, allow) for kind, name, operation in rights]
    for future in admin.create_acls([AclBinding(*rule) for rule in rules]).values():
        future.result()
    try:
        yield
    finally:
        filters = [AclBindingFilter(*rule) for rule in rules]
        for future in admin.delete_acls(filters).values():
            future.result()


def command(kafka: SecureKafka, path: Path, *arguments: str) -> list[str]:
    """Return a command of the user who has no rights but those of `allow`."""
    server = f"127.0.0.1:{kafka.ports['SASL_SSL']}"
    login = Login(server, kafka.authority.certificate, USER, PASSWORD)
    config = login.java_file(path / "client.properties")
    where = ["--command-config", str(config), "--bootstrap-server", server]
    return [sys.executable, "-m", "kohort.cli", "watch", *arguments, *where]


class Watcher:
    """A running command."""

    def __init__(self, path: Path, process: subprocess.Popen[bytes]) -> None:
        self._path = path
        self._process = process

    @property
    def said(self) -> str:
        return (self._path / "stderr").read_text()

    def records(self, group: str) -> list[dict[str, Any]]:
        assert self._process.poll() is None, self.said
        lines = (self._path / "stdout").read_text().splitlines(keepends=True)
        whole = [json.loads(line) for line in lines if line.endswith("\n")]
        return [record for record in whole if record["group"] == group]


@contextmanager
def watching(kafka: SecureKafka, path: Path, *options: str) -> Iterator[Watcher]:
    with ExitStack() as stack:
        files = [stack.enter_context((path / name).open("w")) for name in ("stdout", "stderr")]
        process = subprocess.Popen(
            command(kafka, path, "--json", "--http", "localhost:0", *options),
            stdout=files[0],
            stderr=files[1],
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        yield Watcher(path, process)


@contextmanager
def member(kafka: SecureKafka, group: str, name: str, protocol: str) -> Iterator[None]:
    arguments = [kafka.bootstrap, group, name, protocol]
    with subprocess.Popen([sys.executable, "-c", MEMBER, *arguments]) as process:
        try:
            yield
        finally:
            process.terminate()


def wait_for(kafka: SecureKafka, group: str, size: int) -> None:
    admin = admin_client(kafka.bootstrap)

    def is_so() -> bool:
        try:
            described = admin.describe_consumer_groups([group])[group].result()
        except KafkaException:
            return False
        return described.state is ConsumerGroupState.STABLE and len(described.members) == size

    wait_until(is_so, f"a group of {size}")


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.long)])
def test_without_any_right_it_names_them_and_polls_what_it_may(
    kafka: SecureKafka, tmp_path: Path, protocol: str
) -> None:
    group = f"{protocol}-billing"
    asked = command(kafka, tmp_path, "--once", "--group", group)
    with member(kafka, group, "a", protocol):
        wait_for(kafka, group, 1)
        once = subprocess.run(asked, check=False, capture_output=True, text=True)
        assert once.returncode == 4
        assert "--operation Read --topic __consumer_offsets" in once.stderr
        describe: Right = (ResourceType.GROUP, group, AclOperation.DESCRIBE)
        with allowed(kafka, describe, DESCRIBE_TOPIC), watching(kafka, tmp_path) as watcher:
            wait_until(lambda: "Watching" in watcher.said, "the first poll")
            with member(kafka, group, "b", protocol):
                wait_until(lambda: len(watcher.records(group)) >= 1, "b's join")
                wait_for(kafka, group, 2)
            wait_until(lambda: watcher.records(group)[-1]["members_after"] == 1, "b's departure")
            history = watcher.records(group)
    assert {record["observed"]["by"][0] for record in history} == {"polls"}
    first, last = history[0]["trigger"], history[-1]["trigger"]
    assert (first["kind"], first["certainty"]) == ("member_added", "likely")
    assert last["certainty"] == "unclear"
    assert first["client_id"] == last["client_id"] == "b"
    assert {"member_left", "session_expired"} <= set(last["candidates"])
    assert watcher.said.count("--operation Read --topic __consumer_offsets") == 1


@pytest.mark.long
def test_without_the_right_to_groups_it_reads_their_records_and_the_log(
    kafka: SecureKafka, tmp_path: Path
) -> None:
    group = "hidden-billing"
    log = "--log", str(kafka.log_file)
    with allowed(kafka, READ_OFFSETS), watching(kafka, tmp_path, *log) as watcher:
        # The first group of the broker creates the topic.
        ready = "Watching", "the first group creates it"
        wait_until(lambda: any(text in watcher.said for text in ready), "the end of the past")
        with member(kafka, group, "a", "classic"):
            wait_until(lambda: len(watcher.records(group)) >= 1, "a's join")
            wait_for(kafka, group, 1)
            with member(kafka, group, "b", "classic"):
                wait_until(lambda: len(watcher.records(group)) >= 2, "b's join")
            wait_for(kafka, group, 1)
        wait_until(lambda: watcher.records(group)[-1]["outcome"] == "empty", "a's end")
        history = watcher.records(group)
        asked = command(kafka, tmp_path, "--once", "--group", group, "--last", "9", "--json")
        once = subprocess.run(asked, check=True, capture_output=True, text=True)
    assert "--operation Describe --group '*'" in once.stderr
    sequences = [record["sequence"] for record in json.loads(once.stdout)["rebalances"]]
    assert sequences == [record["sequence"] for record in history]
    causes = [record["trigger"] for record in history]
    kinds = [cause["kind"] for cause in causes]
    assert kinds == ["member_added", "member_added", "member_left", "member_left"]
    assert {cause["certainty"] for cause in causes} == {"certain"}
    assert all(cause["evidence"][-1]["kind"] == "log_line" for cause in causes)
    assert history[0]["observed"]["by"] == ["records", "commits", "log"]


def test_it_names_the_rights_to_store_the_history_in_a_topic(
    kafka: SecureKafka, tmp_path: Path
) -> None:
    history = "__rebalance_history"
    operations = (AclOperation.CREATE, AclOperation.READ, AclOperation.WRITE)
    rights = [(ResourceType.TOPIC, history, operation) for operation in operations]
    asked = command(kafka, tmp_path, "--history", "topic", "--http", "none")

    def refusal() -> str:
        done = subprocess.run(asked, check=False, capture_output=True, text=True)
        assert done.returncode == 4
        return done.stderr

    with member(kafka, "stored", "a", "classic"), allowed(kafka, READ_OFFSETS):
        wait_for(kafka, "stored", 1)
        for operation in ("Create", "Write"):
            assert f"--operation {operation} --topic {history}" in refusal()
        with allowed(kafka, *rights):
            assert "--operation Read --group kohort-watch" in refusal()
