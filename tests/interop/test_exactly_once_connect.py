"""A source connector of Kafka Connect with exactly.once.source.support=enabled (KIP-618): a file is
read into a topic, line by line, while its worker and its broker are killed.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.connect_worker import ConnectWorker
from tests.interop.trouble import Scene, scene
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.clients.java_transactions import read_to_end, values_of
from tests.support.clients.model import wait_until
from tests.support.processes.java_process import JavaProcess

ROUND = 200
"""Lines between two kills."""


class Reading:
    """A worker that reads a file, and what there is of it in the topic."""

    def __init__(
        self, directory: Path, stage: Scene, stack: ExitStack, reader: JavaProcess
    ) -> None:
        self.server = stage.server
        self._reader = reader
        self._file = directory / "read.txt"
        self._file.touch()
        more = {"exactly.once.source.support": "enabled"}
        self.worker = ConnectWorker(directory / "worker", stage.bootstrap, more)
        stack.callback(self.worker.kill)
        self.worker.start()
        self.worker.wait_ready()
        self.worker.put(
            "reader",
            {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
                "exactly.once.support": "required",
                "transaction.boundary": "poll",
                "file": str(self._file),
                "topic": "lines",
            },
        )

    def write(self) -> None:
        """One more round, of which nothing may have been read when this returns."""
        begin = len(self._file.read_text().splitlines())
        with self._file.open("a") as file:
            file.writelines(f"line {number}\n" for number in range(begin, begin + ROUND))

    def read(self) -> list[str]:
        """What is committed in the topic."""
        return values_of(
            read_to_end(self.server.bootstrap, self._reader, "lines", "read_committed")
        )

    def wait_more(self) -> None:
        """Until something of the last round is there."""
        begin = len(self._file.read_text().splitlines()) - ROUND
        wait_until(lambda: len(self.read()) > begin, lambda: f"{len(self.read())}", timeout_s=120)

    def check(self) -> None:
        """Each line once, in order."""
        lines = self._file.read_text().splitlines()
        wait_until(
            lambda: len(self.read()) >= len(lines), lambda: f"{len(self.read())}", timeout_s=120
        )
        assert self.read() == lines


@pytest.fixture
def reading(
    tmp_path: Path,
    own_broker_kind: type[KafkaServer | KohortServer],
    java_clients: JavaProcess,
) -> Iterator[Reading]:
    with scene(tmp_path / "broker", own_broker_kind) as stage, ExitStack() as stack:
        yield Reading(tmp_path, stage, stack, java_clients)


@pytest.mark.long
def test_every_line_is_read_once_whoever_is_killed_meanwhile(reading: Reading) -> None:
    for _ in range(2):
        reading.write()
        reading.wait_more()
        reading.write()
        reading.worker.kill()
        reading.worker.start()
        reading.worker.wait_ready()
        reading.wait_more()
        reading.write()
        reading.server.kill()
        reading.server.start()
    reading.check()
