"""``kohort watch`` on a broker with stock consumers, of which one is killed."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import ConsumerGroupState, KafkaException, Producer
from confluent_kafka.admin import NewTopic
from prometheus_client.parser import text_string_to_metric_families

from kohort.cli import main
from tests.support.brokers.kafka_server import EarlierKafkaServer, KafkaServer, OldestKafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess, free_port
from tests.support.clients.confluent_client import admin_client, create_topics
from tests.support.waiting import wait_until

Json = dict[str, Any]

SESSION_MS = 6_000
TOPIC, GROUP, PARTITIONS = "orders", "billing", 4
MEMBER = f"""
import signal, sys
from confluent_kafka import Consumer
consumer = Consumer({{
    "bootstrap.servers": sys.argv[1], "client.id": sys.argv[2], "group.id": "{GROUP}",
    "session.timeout.ms": {SESSION_MS}, "heartbeat.interval.ms": 1000,
    "auto.commit.interval.ms": 500, "auto.offset.reset": "earliest",
}})
consumer.subscribe(["{TOPIC}"])
running = [True]
signal.signal(signal.SIGTERM, lambda *_: running.clear())
while running:
    consumer.poll(0.1)
consumer.close()
"""


class Lab:
    """A broker with a topic that gets records all the time."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.admin = admin_client(server.bootstrap)
        create_topics(self.admin, NewTopic(TOPIC, PARTITIONS, 1))
        self.producer = Producer({"bootstrap.servers": server.bootstrap})

    @contextmanager
    def member(self, name: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-c", MEMBER, self.server.bootstrap, name]
        with subprocess.Popen(command) as process:
            try:
                yield process
            finally:
                process.send_signal(signal.SIGTERM)

    def wait_for(self, size: int) -> None:
        """Produce until the group has so many members, with partitions each."""

        def is_so() -> bool:
            for partition in range(PARTITIONS):
                self.producer.produce(TOPIC, b"", partition=partition)
            self.producer.flush()
            try:
                described = self.admin.describe_consumer_groups([GROUP])[GROUP].result()
            except KafkaException:  # Its coordinator is just being loaded.
                return False
            members = [one for one in described.members if one.assignment.topic_partitions]
            return described.state is ConsumerGroupState.STABLE and len(members) == size

        wait_until(is_so, f"a group of {size}")

    @contextmanager
    def served(self, *options: str) -> Iterator[str]:
        """Follow the groups; yield the address of the watcher's pages when it has read the past."""
        command = [sys.executable, "-m", "kohort.cli", "watch", *options]
        where = ["--bootstrap-server", self.server.bootstrap]
        with subprocess.Popen([*command, *where], stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                url = process.stderr.readline().partition("pages: ")[2].partition(",")[0].strip()
                for line in process.stderr:
                    if line.startswith("Watching"):
                        break
                yield url
            finally:
                process.kill()

    @contextmanager
    def watcher(self, history: Path | str) -> Iterator[subprocess.Popen[bytes]]:
        """Follow the groups, and store what happens."""
        command = [sys.executable, "-m", "kohort.cli", "watch", "--history", str(history)]
        with subprocess.Popen([*command, "--bootstrap-server", self.server.bootstrap]) as process:
            try:
                yield process
            finally:
                process.kill()

    def watch(self) -> list[Json]:
        """Return the history of the group, as the command prints it."""
        return self._rebalances("watch", "--once", "--group", GROUP)

    def why(self) -> list[Json]:
        """Return the history of the group in the topic."""
        return self._rebalances("groups", "why", GROUP)

    def _rebalances(self, *command: str) -> list[Json]:
        where = ["--json", "--last", "100", "--bootstrap-server", self.server.bootstrap]
        rebalances: list[Json] = json.loads(kohort(*command, *where))["rebalances"]
        return rebalances


def kohort(*arguments: str) -> str:
    """Run a command and return what it prints."""
    with redirect_stdout(StringIO()) as printed:
        assert main(arguments) == 0
    return printed.getvalue()


def metric(url: str, name: str, **labels: str) -> float:
    """Return the sum of a metric's samples with these labels."""
    with urlopen(f"{url}/metrics", timeout=30) as response:
        families = text_string_to_metric_families(response.read().decode())
    return sum(
        sample.value
        for family in families
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )


def identities(records: list[Json]) -> list[tuple[int, int, str]]:
    """Return what must not depend on when the watcher ran: number, offset and cause."""
    return [
        (record["sequence"], record["observed"]["offset"], record["trigger"]["kind"])
        for record in records
        if record["group"] == GROUP
    ]


def stored(directory: Path) -> list[Json]:
    """Return what a watcher has written to a directory."""
    file = directory / "history.jsonl"
    if not file.exists():
        return []
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize(
    "kind",
    [
        KafkaServer,
        pytest.param(KohortServer, marks=pytest.mark.long),
        pytest.param(EarlierKafkaServer, marks=pytest.mark.long),
        pytest.param(OldestKafkaServer, marks=pytest.mark.long),
    ],
)
def test_it_names_who_joined_who_was_killed_and_who_left(
    kind: type[KafkaServer | KohortServer], tmp_path: Path
) -> None:
    with kind(tmp_path, overrides={"group.initial.rebalance.delay.ms": "0"}) as server:
        lab = Lab(server)
        with lab.member("a"):
            lab.wait_for(1)
            # A Kohort has its own history in the topic.
            topic = "topic:watched" if kind is KohortServer else "topic"
            with lab.watcher(tmp_path / "whole"), lab.watcher(topic):
                with lab.watcher(tmp_path / "cut"), lab.member("b") as doomed:
                    lab.wait_for(2)
                    doomed.kill()
                lab.wait_for(1)
                with lab.watcher(tmp_path / "cut"):
                    wait_until(lambda: len(identities(stored(tmp_path / "cut"))) == 3, "b's end")
                wait_until(lambda: len(lab.why()) == 3, "b's end in the topic")
                why = lab.why()
        wait_until(lambda: lab.watch()[-1]["outcome"] == "empty", "a's end")
        history = lab.watch()
    whole = identities(stored(tmp_path / "whole"))
    assert identities(stored(tmp_path / "cut"))[: len(whole)] == whole[:3]
    if kind is KafkaServer:
        assert identities(why) == identities(stored(tmp_path / "cut"))[:3]
    told = [
        (record["trigger"]["kind"], record["trigger"]["client_id"], record["members_after"])
        for record in history
    ]
    assert told == [
        ("member_added", "a", 1),
        ("member_added", "b", 2),
        ("session_expired", "b", 1),
        ("member_left", "a", 0),
    ]
    expired = history[2]["trigger"]
    # On a slow machine, the rebalance may have taken too long to tell.
    assert expired["certainty"] != "certain"
    assert expired["evidence"][0]["ms"] >= SESSION_MS - 500
    assert history[2]["partitions"]["moved"] == PARTITIONS // 2


@pytest.mark.long
def test_commands_and_metrics_work_against_the_watcher_of_a_kafka(tmp_path: Path) -> None:
    with KafkaServer(tmp_path, overrides={"group.initial.rebalance.delay.ms": "0"}) as server:
        lab = Lab(server)
        cluster = str(lab.admin.list_topics().cluster_id)
        with lab.member("a"):
            lab.wait_for(1)
            # A watcher waits a second for more of the same step before it takes it for the past.
            time.sleep(2)
            with lab.served("--http", "localhost:0") as url:
                count = partial(metric, url, "kohort_rebalances_started_total", cluster=cluster)
                assert count() == 0, "the past is not counted"
                with lab.member("b") as doomed:
                    lab.wait_for(2)
                    doomed.kill()
                lab.wait_for(1)
                wait_until(lambda: count(cause="session_expired") == 1, "the end of b")
                assert count(cause="member_added") == 1
                of_group = {"consumergroup": GROUP, "cluster": cluster}
                name = "kohort_consumergroup_members_removed_total"
                assert metric(url, name, cause="session_expired", **of_group) == 1
                assert metric(url, "kafka_consumergroup_members", **of_group) == 1
                assert metric(url, "kafka_consumergroup_current_offset_sum", **of_group) > 0
                answer = json.loads(kohort("groups", "why", GROUP, "--json", "--http", url))
                certainty = answer["rebalances"][-1]["trigger"]["certainty"]
                unclear = metric(url, "kohort_watch_unclear_total")
                assert unclear == (certainty == "unclear")
                why = kohort("groups", "why", GROUP, "--http", url)
                assert "because member b-" in why
                assert "missed its session timeout of 6 s" in why
                assert GROUP in kohort("groups", "timeline", GROUP, "--http", url)
                assert GROUP in kohort("groups", "list", "--bootstrap-server", server.bootstrap)
                with urlopen(f"{url}/groups/{GROUP}", timeout=30) as response:
                    shown = json.loads(response.read())
                assert (shown["state"], shown["rebalances"]) == ("Stable", 3)
                (member,) = shown["members"]
                assert member["client_id"] == "a"
                assert member["assignment"] == {TOPIC: list(range(PARTITIONS))}


def test_a_port_that_is_taken_is_an_error_only_if_it_was_chosen(tmp_path: Path) -> None:
    with KohortServer(tmp_path) as server:
        lab = Lab(server)
        with lab.member("a"):
            lab.wait_for(1)
            with lab.served() as url, lab.served() as another:
                assert url != another
                address = url.removeprefix("http://")
                command = ["watch", "--http", address, "--bootstrap-server", server.bootstrap]
                refused = subprocess.run(
                    [sys.executable, "-m", "kohort.cli", *command],
                    check=False,
                    capture_output=True,
                    text=True,
                )
                assert refused.returncode == 2
                assert address in refused.stderr
                assert "choose another port" in refused.stderr


def test_pages_are_served_before_there_is_a_group(tmp_path: Path) -> None:
    with KohortServer(tmp_path) as server:
        lab = Lab(server)
        address = f"localhost:{free_port()}"
        command = [sys.executable, "-m", "kohort.cli", "watch", "--http", address]

        def group_count() -> int | None:
            try:
                with urlopen(f"http://{address}/groups", timeout=30) as response:
                    total: int = json.loads(response.read())["total"]
                    return total
            except OSError:
                return None

        with subprocess.Popen([*command, "--bootstrap-server", server.bootstrap]) as process:
            try:
                wait_until(lambda: group_count() == 0, "an empty page")
                with lab.member("a"):
                    wait_until(lambda: group_count() == 1, "the first group")
            finally:
                process.kill()
