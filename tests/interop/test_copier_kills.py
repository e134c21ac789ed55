"""Read, process, write, exactly once, by Kafka's own clients: what Kafka's system tests call
TransactionalMessageCopier. It and its broker are killed in turn, and the copy is the original.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.interop.trouble import SESSION_TIMEOUT_MS, scene
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.java_transactions import Isolation, read_to_end, values_of
from tests.support.clients.model import Record
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

PARTITIONS = 2
RECORDS_OF_A_TRANSACTION = 10
ABORT_EVERY = 7
PROGRESS = 4
"""Transactions between two kills."""


class Copy:
    """A copier that is being run, and its broker."""

    def __init__(self, server: ServerProcess, stack: ExitStack) -> None:
        self.server = server
        self.original: list[str] = []
        """What has been written to be copied, in the order of its partitions."""
        self._stack = stack
        self.process = self._start()

    def _start(self) -> JavaProcess:
        process = self._stack.enter_context(JavaProcess("ClientDriver", "broker"))
        self._stack.callback(process.kill)
        process.call(
            op="copy",
            input="original",
            output="copy",
            abort_every=ABORT_EVERY,
            config={
                "bootstrap.servers": self.server.bootstrap,
                "transactional.id": "copier",
                "linger.ms": 0,
                "group.id": "copiers",
                "heartbeat.interval.ms": 300,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "isolation.level": "read_committed",
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "max.poll.records": RECORDS_OF_A_TRANSACTION,
                "reconnect.backoff.max.ms": 200,
            },
        )
        return process

    def write_more(self) -> None:
        """Records for twice as many transactions as `wait_progress` waits for: on a busy machine a
        broker takes longer to start than a copier takes for all that was there.
        """
        begin = len(self.original) // PARTITIONS
        numbers = range(begin, begin + RECORDS_OF_A_TRANSACTION * PROGRESS)
        values = [f"{partition}/{number}" for partition in range(PARTITIONS) for number in numbers]
        records = [Record(value.encode(), partition=int(value[0])) for value in values]
        ConfluentClient(self.server.bootstrap).produce("original", records, idempotent=True)
        self.original += values
        self.original.sort(key=lambda value: value[0])

    def ended(self) -> int:
        """Transactions of the copier that runs now."""
        state = self.process.call(op="copied")
        return int(state["committed"] + state["aborted"])

    def wait_progress(self) -> None:
        before = self.ended()
        wait_until(lambda: self.ended() >= before + PROGRESS, self.state)

    def state(self) -> str:
        return f"{self.process.call(op='copied')}"

    def kill_broker(self) -> None:
        self.server.kill()
        self.server.start()

    def kill_copier(self) -> None:
        self.process.kill()
        self.process = self._start()

    def read(self, isolation: Isolation) -> list[str]:
        records = read_to_end(self.server.bootstrap, self.process, "copy", isolation)
        return values_of(sorted(records, key=lambda record: record.partition or 0))


@pytest.fixture
def copy(tmp_path: Path, own_broker_kind: type[KafkaServer | KohortServer]) -> Iterator[Copy]:
    with scene(tmp_path, own_broker_kind) as stage, ExitStack() as stack:
        admin = admin_client(stage.bootstrap)
        topics = [NewTopic(name, PARTITIONS, 1) for name in ("original", "copy")]
        create_topics(admin, *topics)
        yield Copy(stage.server, stack)


@pytest.fixture
def kills(*, long_form: bool) -> int:
    return 20 if long_form else 2


def test_a_copy_is_the_original_whichever_side_is_killed_meanwhile(copy: Copy, kills: int) -> None:
    copy.write_more()
    for kill in islice(cycle((copy.kill_broker, copy.kill_copier, copy.kill_broker)), kills):
        copy.write_more()
        copy.wait_progress()
        kill()

    copy.write_more()
    wait_until(lambda: len(copy.read("read_committed")) >= len(copy.original), copy.state)
    assert copy.read("read_committed") == copy.original
    # What was aborted, by the copier and by who followed it, is there for others.
    assert len(copy.read("read_uncommitted")) > len(copy.original)
