"""The acts of real clients are named correctly: a deploy, a pause, a crash, scaling out."""

import json
import signal
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from kohort.insight.analysis.finder import compute_findings
from kohort.insight.analysis.rows import read_histories
from kohort.insight.report.from_history import EVERYTHING
from kohort.insight.tables.findings import Act
from tests.interop.lives.life import Process, python_command
from tests.interop.lives.member import Seat
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.clients.confluent_client import admin_client, create_topics

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SESSION_MS = 6_000
"""The shortest that the broker accepts."""
PAUSE_S = 11.0
AWAY_S = 9.0
SETTLED_S = 5.0


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The broker's addresses."""
    port = free_port()
    settings = {"kohort.metrics.port": str(port), "group.initial.rebalance.delay.ms": "1000"}
    with KohortServer(tmp_path_factory.mktemp("acts"), overrides=settings) as server:
        topic = NewTopic("orders", num_partitions=6, replication_factor=1)
        create_topics(admin_client(server.bootstrap), topic)
        yield server.bootstrap, f"http://127.0.0.1:{port}"


def acts(http: str, group: str) -> list[Act]:
    url = f"{http}/groups/{group}/rebalances?last=1000"
    with urllib.request.urlopen(url, timeout=60) as answer:
        records: list[dict[str, Any]] = json.load(answer)["rebalances"]
    ended = [record for record in records if record.get("outcome") != "running"]
    (history,) = read_histories("", ended)
    found: list[Act] = [*compute_findings(history, EVERYTHING)["acts"]]  # type: ignore[list-item]
    return found


@pytest.mark.parametrize("is_static", [False, True], ids=["dynamic", "static"])
@pytest.mark.parametrize("library", ["librdkafka", "aiokafka"])
def test_each_act_is_named_as_what_was_done(
    http: tuple[str, str], library: str, is_static: bool
) -> None:
    group = f"acts-{library}-{is_static}"
    workers = [
        Process(
            python_command(
                library,
                Seat(
                    bootstrap=http[0],
                    group=group,
                    topic="orders",
                    client_id=name,
                    instance_id=name if is_static else None,
                    session_timeout_ms=SESSION_MS,
                    heartbeat_interval_ms=500,
                    cooperative=False,
                    revoke_s=0.0,
                ),
            ),
            starts=3,
        )
        for name in ("w-0", "w-1", "w-2")
    ]
    first, second, third = workers
    try:
        for worker in workers:
            worker.wait_until_ready()
        for worker in (first, second):
            worker.start()
        time.sleep(3 * SETTLED_S)
        second.signal(signal.SIGSTOP)
        time.sleep(PAUSE_S)
        second.signal(signal.SIGCONT)
        time.sleep(2 * SETTLED_S)
        second.kill()
        time.sleep(AWAY_S)
        second.start()
        time.sleep(2 * SETTLED_S)
        third.start()
        time.sleep(SETTLED_S)
        for worker in (first, second):
            worker.stop()
            worker.start()
            time.sleep(SETTLED_S)
    finally:
        for worker in workers:
            worker.close()
    found = [(act.kind, act.processes) for act in acts(http[1], group)]
    assert found == [
        ("start", ["w-0", "w-1"]),
        ("pause", ["w-1"]),
        ("slow_restart" if is_static else "crash", ["w-1"]),
        ("scale_out", ["w-2"]),
        ("deploy", ["w-0", "w-1"]),
    ]
