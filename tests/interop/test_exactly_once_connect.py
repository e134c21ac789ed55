"""A source connector of Kafka Connect with exactly.once.source.support=enabled (KIP-618): a file is
read into a topic, line by line, while its worker and its broker are killed, and a sink beside it
writes what is committed of the topic to another file.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.connect_worker import ConnectWorker
from tests.interop.trouble import SESSION_TIMEOUT_MS, SETTINGS
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.java_transactions import read_to_end, values_of
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

ROUND = 200
"""Lines between two kills."""
KILLS = 4


class Reading:
    """A worker that reads a file, and what there is of it in the topic."""

    def __init__(
        self, directory: Path, server: ServerProcess, stack: ExitStack, reader: JavaProcess
    ) -> None:
        self.server = server
        self._reader = reader
        self._file = directory / "read.txt"
        self._file.touch()
        self._written = directory / "written.txt"
        more = {
            "exactly.once.source.support": "enabled",
            "consumer.isolation.level": "read_committed",
            "consumer.auto.offset.reset": "earliest",
            "consumer.session.timeout.ms": f"{SESSION_TIMEOUT_MS}",
            "consumer.heartbeat.interval.ms": "300",
        }
        self.worker = ConnectWorker(directory / "worker", server.bootstrap, more)
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
        self.worker.put(
            "writer",
            {
                "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
                "file": str(self._written),
                "topics": "lines",
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
        self._check_written(lines)

    def _check_written(self, lines: list[str]) -> None:
        """The sink has lost nothing. What it had not committed when it was killed it writes again,
        behind a line that may be torn.
        """

        def missing() -> set[str]:
            return set(lines) - set(self._written.read_text().splitlines())

        wait_until(lambda: not missing(), lambda: f"{sorted(missing())[:9]}", timeout_s=120)
        torn = [one for one in self._written.read_text().splitlines() if one not in lines]
        assert len(torn) <= KILLS, torn


@pytest.fixture
def reading(
    tmp_path: Path,
    own_broker_kind: type[KafkaServer | KohortServer],
    java_clients: JavaProcess,
) -> Iterator[Reading]:
    with (
        own_broker_kind(tmp_path / "broker", overrides=SETTINGS) as server,
        ExitStack() as stack,
    ):
        yield Reading(tmp_path, server, stack, java_clients)


@pytest.mark.long
def test_every_line_is_read_once_whichever_side_is_killed_meanwhile(reading: Reading) -> None:
    for _ in range(KILLS // 2):
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
