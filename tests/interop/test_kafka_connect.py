"""Kafka Connect in distributed mode: two workers, a file that is read into a topic, and one that is
written from it. Workers form a group of their own, whose assignments are no partitions.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.interop.connect_worker import GROUP, ConnectWorker
from tests.interop.trouble import scene
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.groups.group_probe import GroupProbe
from tests.support.waiting import wait_until


class Cluster:
    """Two workers, and a line of text that goes through both connectors."""

    def __init__(
        self, directory: Path, bootstrap: str, probe: GroupProbe, stack: ExitStack
    ) -> None:
        self.probe = probe
        self.read, self.written = directory / "read.txt", directory / "written.txt"
        self.read.touch()
        self.workers = [
            ConnectWorker(directory / f"worker-{number}", bootstrap) for number in range(2)
        ]
        for worker in self.workers:
            stack.callback(worker.kill)
            worker.start()
        for worker in self.workers:
            worker.wait_ready()
        self.probe.wait_stable(2)
        kinds = "org.apache.kafka.connect.file.FileStream{}Connector"
        self.workers[0].put(
            "reader",
            {
                "connector.class": kinds.format("Source"),
                "file": str(self.read),
                "topic": "connect-lines",
            },
        )
        self.workers[1].put(
            "writer",
            {
                "connector.class": kinds.format("Sink"),
                "file": str(self.written),
                "topics": "connect-lines",
            },
        )

    def wait_running(self, *workers: ConnectWorker) -> None:
        """Until these run both connectors and their tasks, and all that was read is written."""
        names = {worker.name for worker in workers}

        def is_so() -> bool:
            return all(
                parts
                and all(part["state"] == "RUNNING" and part["worker_id"] in names for part in parts)
                for parts in self._parts(workers[0])
            )

        wait_until(is_so, lambda: f"{list(self._parts(workers[0]))}", timeout_s=90)
        self.probe.wait_stable(len(workers))

    @staticmethod
    def _parts(worker: ConnectWorker) -> Iterator[list[dict[str, Any]]]:
        for connector in ("reader", "writer"):
            match worker.get(f"/connectors/{connector}/status"):
                case {"connector": part, "tasks": [*tasks]} if tasks:
                    yield [part, *tasks]
                case _:
                    yield []

    def check_flows(self, count: int) -> None:
        """Lines go all the way, in their order; a line may be written again after a restart."""
        with self.read.open("a") as file:
            start = len(self.read.read_text().splitlines())
            file.writelines(f"line {number}\n" for number in range(start, start + count))
        expected = self.read.read_text().splitlines()

        def written() -> list[str]:
            return list(dict.fromkeys(self.written.read_text().splitlines()))

        wait_until(lambda: self.written.exists() and written() == expected, "all lines written")


@pytest.fixture
def cluster(tmp_path: Path, own_broker_kind: type[KafkaServer | KohortServer]) -> Iterator[Cluster]:
    with scene(tmp_path / "broker", own_broker_kind) as stage, ExitStack() as stack:
        probe = GroupProbe(stage.server.port, GROUP, stage.http_port)
        yield Cluster(tmp_path, stage.bootstrap, probe, stack)


@pytest.mark.long
def test_two_workers_run_a_source_and_a_sink_and_the_restart_of_one_is_explained(
    cluster: Cluster,
) -> None:
    first, second = cluster.workers
    cluster.wait_running(first, second)
    cluster.check_flows(100)
    probe = cluster.probe
    before = probe.records()[-1]["sequence"] if probe.has_history else 0

    second.stop()
    cluster.wait_running(first)
    second.start()
    second.wait_ready()
    cluster.wait_running(first, second)
    cluster.check_flows(100)

    assert (probe.describe().protocol_type, probe.describe().protocol_data) == (
        "connect",
        "sessioned",
    )
    if probe.has_history:
        print(probe.why(after=before))
        check_explained(probe, before, second.name)


def check_explained(probe: GroupProbe, before: int, restarted: str) -> None:
    news = probe.records(after=before)
    causes = [record["trigger"]["kind"] for record in news]
    assert (causes.count("member_left"), causes.count("member_added")) == (1, 1)
    for record in news:
        if record["trigger"]["kind"] in {"member_left", "member_added"}:
            assert restarted in record["trigger"]["member_id"]
        # Connect's assignments are its own affair; what else is known is told all the same.
        assert not record["partitions"]["known"]
        assert record["protocol_type"] == "connect"
        assert record["outcome"] == "stable"
