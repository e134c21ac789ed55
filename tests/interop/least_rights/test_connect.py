"""Kafka Connect through TLS and SCRAM, with the rules of docs/access.md and nothing else."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

import pytest

from tests.interop.connect_worker import ConnectWorker
from tests.interop.least_rights.checks import check_needed, check_suffice, each_need, rows_of
from tests.interop.least_rights.visitors import (
    Client,
    Guarded,
    Names,
    ProgramResult,
    done_or_denied,
)
from tests.support.clients.login import Login

KIND: Final = "org.apache.kafka.connect.file.FileStream{}Connector"

Task = Callable[["Worker"], bool]
"""What it does, and whether it has."""


class Worker:
    """A worker alone; its connectors come with its own rights."""

    def __init__(self, login: Login, names: Names, directory: Path) -> None:
        self._names = names
        self._directory = directory
        security = login.java()
        more = {
            "group.id": names["WORKERS"],
            "config.storage.topic": names["CONFIGS"],
            "offset.storage.topic": names["OFFSETS"],
            "status.storage.topic": names["STATUS"],
            **security,
        }
        for client in ("producer", "consumer", "admin"):
            more |= {f"{client}.{name}": value for name, value in security.items()}
        self._worker = ConnectWorker(directory, login.bootstrap, more)

    def run(self, task: Task) -> ProgramResult:
        self._worker.start()
        try:
            is_done = self._until(lambda: self._worker.get("/connectors") is not None)
            return ProgramResult(is_done and task(self), self._said())
        finally:
            self._worker.kill()

    def starts(self) -> bool:
        """Writes to each of its topics, by a connector that has nothing to do."""
        return self._runs("nothing", "Source", file=str(self._directory / "none"), topic="none")

    def reads_a_file(self) -> bool:
        """A source connector, until it tells how far its records have been written."""
        source = self._directory / "source.txt"
        source.write_text("one\ntwo\nthree\n")
        topic = self._names["LINES"]
        if not self._runs("reader", "Source", file=str(source), topic=topic):
            return False
        return self._until(lambda: bool(self._told("/connectors/reader/offsets", "offsets")))

    def writes_a_file(self) -> bool:
        """A sink connector, until it has written what is in its topic."""
        sink = self._directory / "sink.txt"
        topics = self._names["LINES"]
        if not self._runs(self._names["CONNECTOR"], "Sink", file=str(sink), topics=topics):
            return False
        return self._until(lambda: sink.exists() and bool(sink.read_text()))

    def _runs(self, name: str, kind: str, **config: str) -> bool:
        config = {"connector.class": KIND.format(kind), "tasks.max": "1", **config}

        def is_taken() -> bool:
            # What a worker that is denied cannot write down is its failure.
            with suppress(HTTPError):
                return self._worker.is_taken(name, config)
            return False

        def is_so() -> bool:
            tasks = self._told(f"/connectors/{name}/status", "tasks")
            return [task["state"] for task in tasks] == ["RUNNING"]

        return self._until(is_taken) and self._until(is_so)

    def _told(self, path: str, name: str) -> list[Any]:
        found: Any = self._worker.get(path) or {}
        listed: list[Any] = found.get(name, [])
        return listed

    def _until(self, is_so: Callable[[], bool]) -> bool:
        return done_or_denied(is_so, self._said)

    def _said(self) -> str:
        return (self._directory / "worker.log").read_text(errors="replace")


def works(task: Task) -> Callable[[Login, Names, Path], ProgramResult]:
    return lambda login, names, directory: Worker(login, names, directory).run(task)


WORKER: Final = "Kafka Connect, a worker; `create` for its first start"
SOURCE: Final = "Kafka Connect, a source connector, besides"
SINK: Final = "Kafka Connect, a sink connector, besides"
CLIENTS: Final = {
    "worker": Client(WORKER, works(Worker.starts)),
    "source": Client(SOURCE, works(Worker.reads_a_file), empty=["LINES"], besides=WORKER),
    "sink": Client(SINK, works(Worker.writes_a_file), filled=["LINES"], besides=WORKER),
}

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", CLIENTS)
def test_connect_needs_no_more_than_the_document_says(
    guarded: Guarded, name: str, tmp_path: Path
) -> None:
    check_suffice(guarded, CLIENTS[name], "SCRAM-SHA-256", tmp_path)


@each_need(rows_of(CLIENTS))
def test_connect_is_denied_without_any_of_its_rules(
    guarded: Guarded, name: str, number: int, tmp_path: Path
) -> None:
    check_needed(guarded, CLIENTS[name], number, tmp_path)
