"""A Kafka Streams application: repartition and changelog topics, two instances, one restarted.

At least once; test_exactly_once_streams.py has the other guarantee.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.interop.trouble import SESSION_TIMEOUT_MS, Scene, scene
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.model import Record
from tests.support.groups.group_probe import GroupProbe
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

PARTITIONS = 4
LINES = ("the quick brown fox", "the lazy dog", "quick quick dog")
WORDS = Counter(word for line in LINES for word in line.split())
APPLICATION = "word-count"

pytestmark = pytest.mark.long


class Application:
    """Its instances, and what it has counted so far."""

    def __init__(self, stage: Scene, stack: ExitStack) -> None:
        self.bootstrap = stage.bootstrap
        self.client = ConfluentClient(stage.bootstrap)
        self.probe = GroupProbe(stage.server.port, APPLICATION, stage.http_port)
        self._stack = stack
        self._rounds = 0
        admin = admin_client(stage.bootstrap)
        topics = [NewTopic(name, PARTITIONS, 1) for name in ("lines", "counts")]
        create_topics(admin, *topics)

    def start(self, name: str, *, is_static: bool) -> JavaProcess:
        """Returns before the instance has its part."""
        instance = self._stack.enter_context(JavaProcess("WordCount", "apps"))
        self._stack.callback(instance.kill)
        config = {
            "bootstrap.servers": self.bootstrap,
            "application.id": APPLICATION,
            "client.id": name,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 300,
            "commit.interval.ms": 200,
            "num.stream.threads": 1,
        }
        if is_static:
            # Its restart may take long on a busy machine.
            config["session.timeout.ms"] = 60_000
            config["group.instance.id"] = name
        instance.call(op="start", input="lines", output="counts", config=config)
        return instance

    def wait_running(self, *instances: JavaProcess) -> None:
        def states() -> list[str]:
            return [instance.call(op="state")["state"] for instance in instances]

        wait_until(lambda: states() == ["RUNNING"] * len(instances), lambda: f"{states()}")
        self.probe.wait_stable(len(instances))

    def check_counts(self) -> None:
        """Sends all lines to all partitions once more; nothing is forgotten, nor counted twice."""
        self._rounds += 1
        lines = [
            Record(line.encode(), partition=partition)
            for line in LINES
            for partition in range(PARTITIONS)
        ]
        self.client.produce("lines", lines)
        expected = {word: count * PARTITIONS * self._rounds for word, count in WORDS.items()}
        wait_until(lambda: self._counts() == expected, lambda: f"{self._counts()}: {expected}")

    def _counts(self) -> dict[str, int]:
        """The last word on each word: its counts come in one partition, in order."""
        shown = self.client.consume("counts", 10_000, timeout_s=1)
        return {str(record.key, "utf-8"): int(record.value or 0) for record in shown if record.key}


@pytest.fixture
def application(
    tmp_path: Path, own_broker_kind: type[KafkaServer | KohortServer]
) -> Iterator[Application]:
    with scene(tmp_path, own_broker_kind) as stage, ExitStack() as stack:
        yield Application(stage, stack)


def test_two_instances_count_words_and_the_restart_of_one_is_explained(
    application: Application,
) -> None:
    one = application.start("one", is_static=False)
    other = application.start("other", is_static=False)
    application.wait_running(one, other)
    application.check_counts()
    probe = application.probe
    before = probe.records()[-1]["sequence"] if probe.has_history else 0

    # Streams does not leave the group when it is closed: that is left to its session.
    assert other.call(op="close")["state"] == "NOT_RUNNING"
    again = application.start("again", is_static=False)
    application.wait_running(one, again)
    application.check_counts()

    if probe.has_history:
        print(probe.why(after=before))
        check_explained(probe, before)


def check_explained(probe: GroupProbe, before: int) -> None:
    causes = [
        (cause["kind"], cause["client_id"].split("-")[0])
        for record in probe.records(after=before)
        for cause in (record["trigger"], *record["further_causes"])
    ]
    assert ("member_added", "again") in causes
    assert ("session_expired", "other") in causes
    # Moving tasks from one instance to the other takes rounds of their own, which members ask for.
    asked_for = {"protocols_changed", "leader_rejoined"}
    assert {kind for kind, _client in causes} <= {"member_added", "session_expired"} | asked_for
    assert all(record["partitions"]["known"] for record in probe.records(after=before)), (
        "Streams assigns in the consumer's format"
    )


def test_the_restart_of_a_static_instance_moves_nothing(application: Application) -> None:
    one = application.start("one", is_static=True)
    other = application.start("other", is_static=True)
    application.wait_running(one, other)
    application.check_counts()
    probe, generation = application.probe, application.probe.generation()

    other.call(op="close")
    other = application.start("other", is_static=True)
    application.wait_running(one, other)
    application.check_counts()

    if probe.has_history:
        print(probe.why())
    assert probe.generation() == generation
