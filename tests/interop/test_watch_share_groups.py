"""``kohort watch`` on a broker with a share group of stock consumers, of which one is killed."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka.admin import NewTopic

from kohort.cli import main
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import admin_client, create_topics
from tests.support.waiting import wait_until

Json = dict[str, Any]

TOPIC, GROUP, PARTITIONS = "orders", "jobs", 4
SETTINGS: Final = {
    "group.share.min.session.timeout.ms": "6000",
    "group.share.session.timeout.ms": "6000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.heartbeat.interval.ms": "1000",
}


MEMBER = f"""
import signal, sys
from confluent_kafka import ShareConsumer
consumer = ShareConsumer({{
    "bootstrap.servers": sys.argv[1], "client.id": sys.argv[2], "group.id": "{GROUP}",
}})
consumer.subscribe(["{TOPIC}"])
running = [True]
signal.signal(signal.SIGTERM, lambda *_: running.clear())
while running:
    consumer.poll(0.1)
consumer.close()
"""


class LoggingKafkaServer(KafkaServer):
    extra_java_options = ("-Dkohort.test.log.level=INFO", "-Duser.timezone=UTC")


@contextmanager
def member(server: ServerProcess, name: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", MEMBER, server.bootstrap, name]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)


def kohort(server: ServerProcess, *arguments: str) -> str:
    """Run a command and return what it prints."""
    with redirect_stdout(StringIO()) as printed:
        assert main([*arguments, "--bootstrap-server", server.bootstrap]) == 0
    return printed.getvalue()


@contextmanager
def served(server: ServerProcess) -> Iterator[str]:
    """Follow the groups; yield the address of the watcher's pages when it has read the past."""
    command = [sys.executable, "-m", "kohort.cli", "watch", "--http", "localhost:0"]
    where = ["--bootstrap-server", server.bootstrap]
    with subprocess.Popen([*command, *where], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            url = process.stderr.readline().partition("pages: ")[2].strip()
            for line in process.stderr:
                if line.startswith("Watching"):
                    break
            yield url
        finally:
            process.kill()


def wait_for(server: ServerProcess, *names: str) -> None:
    """Wait until the group has exactly these members, which have taken its last assignment."""

    def is_so() -> bool:
        groups = json.loads(kohort(server, "groups", "list", "--json"))["groups"]
        if GROUP not in [group["group"] for group in groups]:
            return not names
        group = json.loads(kohort(server, "groups", "describe", GROUP, "--json"))
        clients = sorted(one["client_id"] for one in group["members"] if one["assignment"])
        epochs = {one["epoch"] for one in group["members"]}
        return clients == sorted(names) and epochs <= {group["epoch"]}

    wait_until(is_so, f"a group of {', '.join(names) or 'nobody'}")


def gone(records: list[Json]) -> dict[str, tuple[str, str]]:
    """Return how members left, by client id."""
    return {
        one["client_id"]: (one.get("certainty", "certain"), one["fate"])
        for record in records
        for one in record["members"]
        if one["fate"] not in {"kept", "new"}
    }


def told(records: list[Json]) -> list[tuple[int, str, str | None]]:
    """Return who caused each assignment, without those for partitions alone."""
    causes = [
        (record["generation"], trigger["kind"], trigger["client_id"])
        for record in records
        for trigger in (record["trigger"], *record["further_causes"])
    ]
    return [cause for cause in causes if cause[1] not in {"initialized", "topics_changed"}]


@pytest.mark.parametrize("kind", [LoggingKafkaServer, KohortServer])
def test_it_names_who_joined_who_was_killed_and_who_left(
    kind: type[KafkaServer | KohortServer], tmp_path: Path
) -> None:
    directory = tmp_path / "history"
    with kind(tmp_path, overrides=SETTINGS) as server:
        create_topics(admin_client(server.bootstrap), NewTopic(TOPIC, PARTITIONS, 1))
        with member(server, "ann"):
            wait_for(server, "ann")
            with member(server, "bob") as doomed:
                wait_for(server, "ann", "bob")
                doomed.kill()
                # An assignment that bob does not take shows that it sends no heartbeats.
                with member(server, "cem"):
                    wait_for(server, "ann", "cem")
                wait_for(server, "ann")
        wait_for(server)
        once = ("watch", "--once", "--group", GROUP, "--history", str(directory))
        answer = json.loads(kohort(server, *once, "--last", "100", "--json"))
        records: list[Json] = answer["rebalances"]
        assert {record["kind"] for record in records} == {"assigned"}
        causes = told(records)
        assert [(what, who) for _, what, who in causes] == [
            ("member_added", "ann"),
            ("member_added", "bob"),
            ("member_added", "cem"),
            ("session_expired", "bob"),
            ("member_left", "cem"),
            ("member_left", "ann"),
        ]
        assert gone(records) == {
            "bob": ("likely", "session_expired"),
            "cem": ("likely", "left"),
            "ann": ("likely", "left"),
        }
        assert records[-1]["members_after"] == 0
        assert answer["state"] == "Empty"

        why = kohort(server, *once)
        assert "got a new assignment" in why
        assert "client.id ann" in why
        timeline = kohort(server, "groups", "timeline", GROUP, "--from", str(directory))
        assert "client.id ann" in timeline
        listed = kohort(server, "groups", "list", "--from", str(directory))
        assert f"{GROUP}   share" in listed

        with served(server) as url:
            assert "got a new assignment" in kohort(server, "groups", "why", GROUP, "--http", url)

        if kind is LoggingKafkaServer:
            logged = ("--log", str(server.log_file), "--last", "100", "--json")
            answer = json.loads(kohort(server, "watch", "--once", "--group", GROUP, *logged))
            assert gone(answer["rebalances"]) == {
                "bob": ("certain", "session_expired"),
                "cem": ("certain", "left"),
                "ann": ("certain", "left"),
            }
        else:
            own = ("groups", "why", GROUP, "--last", "100", "--json")
            own_records: list[Json] = json.loads(kohort(server, *own))["rebalances"]
            assert told(own_records) == causes
            changes = [
                [(one["member_id"], one["fate"], one["partitions"]) for one in record["members"]]
                for record in own_records
            ]
            assert changes == [
                [(one["member_id"], one["fate"], one["partitions"]) for one in record["members"]]
                for record in records
            ]
