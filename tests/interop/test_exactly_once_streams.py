"""A Kafka Streams application with processing.guarantee=exactly_once_v2, killed as its broker is:
its store counts every word once, and each count is told once.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.interop.trouble import SESSION_TIMEOUT_MS, SETTINGS
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.java_transactions import read_to_end, values_of
from tests.support.clients.model import Record
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

PARTITIONS = 2
WORDS = ("one", "two", "three", "four", "five")
KILLS = 40
"""Of the broker and the application, in turn."""
ROUND = 20
"""How often each word is said between two kills, in each partition."""


class Counting:
    """The application, and what it has told of each word, in the order in which it is read."""

    def __init__(self, server: ServerProcess, stack: ExitStack, reader: JavaProcess) -> None:
        self.server = server
        self._stack = stack
        self._reader = reader
        self._said = 0
        self.instance = self._start()

    def _start(self) -> JavaProcess:
        instance = self._stack.enter_context(JavaProcess("WordCount", "apps"))
        self._stack.callback(instance.kill)
        config = {
            "bootstrap.servers": self.server.bootstrap,
            "application.id": "counting",
            "processing.guarantee": "exactly_once_v2",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 300,
            "commit.interval.ms": 100,
            "num.stream.threads": 1,
            # Not the last one of an interval alone.
            "statestore.cache.max.bytes": 0,
            "reconnect.backoff.max.ms": 200,
        }
        instance.call(op="start", input="lines", output="counts", config=config)
        return instance

    def say(self) -> None:
        """One more round, of which nothing may have been counted when this returns."""
        self._said += ROUND
        line = Record(" ".join(WORDS).encode())
        records = [Record(line.value, partition=p) for p in range(PARTITIONS)] * ROUND
        ConfluentClient(self.server.bootstrap).produce("lines", records, idempotent=True)

    def told(self) -> dict[str, list[str]]:
        records = read_to_end(self.server.bootstrap, self._reader, "counts", "read_committed")
        told = defaultdict(list)
        for record, value in zip(records, values_of(records), strict=True):
            told[(record.key or b"").decode()].append(value)
        return told

    def wait_begun(self) -> None:
        """Until something of the last round has been told."""
        before = (self._said - ROUND) * PARTITIONS
        wait_until(
            lambda: any(len(counts) > before for counts in self.told().values()),
            lambda: f"{ {word: len(counts) for word, counts in self.told().items()} }",
        )

    def check(self) -> None:
        """From 1 to the number of times that it was said, each once and in order, for each word."""
        numbers = [str(number) for number in range(1, self._said * PARTITIONS + 1)]
        wait_until(
            lambda: all(len(self.told()[word]) >= len(numbers) for word in WORDS),
            lambda: f"{ {word: len(counts) for word, counts in self.told().items()} }",
        )
        assert self.told() == dict.fromkeys(WORDS, numbers)

    def kill_broker(self) -> None:
        self.server.kill()
        self.server.start()

    def kill_application(self) -> None:
        self.instance.kill()
        self.instance = self._start()


@pytest.fixture
def counting(
    tmp_path: Path,
    own_broker_kind: type[KafkaServer | KohortServer],
    java_clients: JavaProcess,
) -> Iterator[Counting]:
    with own_broker_kind(tmp_path, overrides=SETTINGS) as server, ExitStack() as stack:
        admin = admin_client(server.bootstrap)
        topics = [NewTopic(name, PARTITIONS, 1) for name in ("lines", "counts")]
        create_topics(admin, *topics)
        yield Counting(server, stack, java_clients)


@pytest.mark.long
def test_every_word_is_counted_once_whichever_side_is_killed_meanwhile(
    counting: Counting,
) -> None:
    for kill in islice(cycle((counting.kill_broker, counting.kill_application)), KILLS):
        counting.say()
        counting.wait_begun()
        counting.say()
        kill()

    counting.check()
