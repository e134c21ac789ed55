"""A program that copies a topic in transactions with its positions; it and its broker are killed.

A program of any language is called with BOOTSTRAP GROUP SOURCE OUT ABORT_EVERY [MORE]. It reads
SOURCE as a member of GROUP, at most ten records at a time, and writes each to the same partition of
OUT, with GROUP as its transactional id; every ABORT_EVERY-th transaction is aborted and done again.
For each that has ended it prints a line, `committed` or `aborted`. Where it cannot go on it ends,
and is started again, as its operator would do. MORE are settings in the words of its library,
such as who it is: a JSON object, or properties for Java.
"""

import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Final

from confluent_kafka.admin import NewTopic

from tests.interop.trouble import SETTINGS
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import (
    ConfluentClient,
    admin_client,
    create_topics,
)
from tests.support.clients.model import Isolation, Record
from tests.support.waiting import wait_until

PARTITIONS: Final = 2
RECORDS_OF_A_TRANSACTION: Final = 10
ABORT_EVERY: Final = 7
PROGRESS: Final = 4
"""Transactions between two kills."""


class Copy:
    """A copier that is being run."""

    def __init__(self, server: ServerProcess, command: Sequence[str], errors: Path) -> None:
        self.server = server
        self.starts = 0
        self.ended = 0
        """Transactions, of all processes."""
        self.original: list[str] = []
        """What has been written to be copied, in the order of its partitions."""
        self._command = [*command, server.bootstrap, "copiers", "original", "copy"]
        self._errors = errors
        self._process: subprocess.Popen[str] | None = None

    def write_more(self) -> None:
        """Records for twice as many transactions as `wait_progress` waits for.

        The copier may have copied all that was there: on a busy machine a broker takes longer to
        start than a copier takes for the rest.
        """
        begin = len(self.original) // PARTITIONS
        numbers = range(begin, begin + RECORDS_OF_A_TRANSACTION * PROGRESS)
        values = [f"{partition}/{number}" for partition in range(PARTITIONS) for number in numbers]
        records = [Record(value.encode(), partition=int(value[0])) for value in values]
        ConfluentClient(self.server.bootstrap).produce("original", records, idempotent=True)
        self.original += values
        self.original.sort(key=lambda value: value[0])

    def start(self) -> None:
        self.starts += 1
        with self._errors.open("a") as errors:
            self._process = subprocess.Popen(
                [*self._command, str(ABORT_EVERY)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        threading.Thread(target=self._count, args=[self._process], daemon=True).start()

    def _count(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self.ended += line.strip() in {"committed", "aborted"}

    def _keep_running(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.start()

    def wait_progress(self) -> None:
        enough = self.ended + PROGRESS

        def has_gone_on() -> bool:
            self._keep_running()
            return self.ended >= enough

        wait_until(has_gone_on, self.state)

    def wait_copied(self, count: int) -> None:
        def is_copied() -> bool:
            self._keep_running()
            return len(self.read("read_committed")) >= count

        wait_until(is_copied, self.state)

    def state(self) -> str:
        tail = self._errors.read_text(errors="replace")[-2000:]
        return f"{self.ended} transactions of {self.starts} processes; errors:\n{tail}"

    def kill_broker(self) -> None:
        self.server.kill()
        self.server.start()

    def kill_copier(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def read(self, isolation: Isolation) -> list[str]:
        records = ConfluentClient(self.server.bootstrap).read_to_end("copy", isolation)
        records.sort(key=lambda record: (record.partition, record.offset))
        return [(record.value or b"").decode() for record in records]


@contextmanager
def copying(
    directory: Path,
    kind: type[KafkaServer | KohortServer],
    command: Sequence[str],
) -> Iterator[Copy]:
    """A broker with the topic `original`, and a copier."""
    with kind(directory, overrides=SETTINGS) as server:
        admin = admin_client(server.bootstrap)
        topics = [NewTopic(name, PARTITIONS, 1) for name in ("original", "copy")]
        create_topics(admin, *topics)
        copy = Copy(server, command, directory / "copier.log")
        copy.start()
        try:
            yield copy
        finally:
            copy.kill_copier()


def check_copy(
    directory: Path,
    kind: type[KafkaServer | KohortServer],
    command: Sequence[str],
    *,
    kills: int,
) -> None:
    """The copy is the original, each record once and in order, whichever is killed meanwhile.

    Of three kills two are the broker's.
    """
    with copying(directory, kind, command) as copy:
        copy.write_more()
        killers = cycle((copy.kill_broker, copy.kill_copier, copy.kill_broker))
        for kill in islice(killers, kills):
            copy.write_more()
            copy.wait_progress()
            kill()

        copy.write_more()
        copy.wait_copied(len(copy.original))
        assert copy.read("read_committed") == copy.original
        # What was aborted, by the copier and by who followed it, is there for others.
        assert len(copy.read("read_uncommitted")) > len(copy.original)
        print(copy.state())
