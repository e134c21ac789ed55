"""MirrorMaker 2 with exactly.once.source.support=enabled between a Kohort and a real Kafka, both
ways. It is killed, and so is the Kohort; each gets what is committed in the other's topic, once.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.interop.foreign.mirror_maker import MirrorMaker, both_ways
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import (
    QUIET,
    ConfluentClient,
    admin_client,
    create_topics,
)
from tests.support.waiting import wait_until

ROUND = 200
TIMEOUT_S = 180
"""A JVM starts, learns of the topics and rebalances, on a busy machine."""
SETTINGS = {"group.min.session.timeout.ms": "1000"}


class Side:
    """One cluster, and its topic that the other is to have."""

    def __init__(self, name: str, server: ServerProcess) -> None:
        self.server = server
        self.topic = f"original-{name}"
        self.copied = f"{name}.{self.topic}"
        self.written = 0
        admin = admin_client(server.bootstrap)
        create_topics(admin, NewTopic(self.topic, 1, 1))

    def write(self) -> None:
        """A round in two transactions, and an aborted one between them."""
        producer = Producer(
            {**QUIET, "bootstrap.servers": self.server.bootstrap, "transactional.id": self.topic}
        )
        producer.init_transactions()
        for commits in (True, False, True):
            producer.begin_transaction()
            for number in range(self.written, self.written + ROUND // 2):
                producer.produce(self.topic, f"{number}" if commits else "never")
            if commits:
                producer.commit_transaction()
                self.written += ROUND // 2
            else:
                producer.abort_transaction()

    def expected(self) -> list[str]:
        return [f"{number}" for number in range(self.written)]


class Mirrored:
    def __init__(self, kohort: ServerProcess, kafka: ServerProcess, maker: MirrorMaker) -> None:
        self.here, self.there = Side("here", kohort), Side("there", kafka)
        self.maker = maker

    def write(self) -> None:
        self.here.write()
        self.there.write()

    def copies(self) -> list[tuple[list[str], list[str]]]:
        """What is there and what should be, each way."""
        return [
            (read(self.there.server.bootstrap, self.here.copied), self.here.expected()),
            (read(self.here.server.bootstrap, self.there.copied), self.there.expected()),
        ]

    def wait_until(self, are_so: Callable[[list[str], list[str]], bool]) -> None:
        wait_until(
            lambda: all(are_so(*way) for way in self.copies()),
            lambda: f"{[len(found) for found, _ in self.copies()]}\n{self.maker.words()}",
            timeout_s=TIMEOUT_S,
        )

    def kill_maker(self) -> None:
        self.maker.kill()
        self.maker.start()

    def kill_kohort(self) -> None:
        self.here.server.kill()
        self.here.server.start()


def read(bootstrap: str, topic: str) -> list[str]:
    if topic not in admin_client(bootstrap).list_topics(timeout=30).topics:
        return []
    records = ConfluentClient(bootstrap).read_to_end(topic, "read_committed")
    return [(record.value or b"").decode() for record in records]


@pytest.fixture
def mirrored(tmp_path: Path) -> Iterator[Mirrored]:
    with (
        KohortServer(tmp_path / "kohort", overrides=SETTINGS) as kohort,
        KafkaServer(tmp_path / "kafka", overrides=SETTINGS) as kafka,
    ):
        maker = MirrorMaker(tmp_path / "maker", both_ways(kohort.bootstrap, kafka.bootstrap))
        try:
            yield Mirrored(kohort, kafka, maker)
        finally:
            maker.kill()


@pytest.mark.long
def test_each_cluster_has_of_the_other_what_was_committed_there_once(mirrored: Mirrored) -> None:
    mirrored.write()
    mirrored.maker.start()
    mirrored.wait_until(lambda found, expected: found == expected)
    for kill in (
        mirrored.kill_kohort,
        mirrored.kill_maker,
        mirrored.kill_kohort,
        mirrored.kill_kohort,
        mirrored.kill_maker,
        mirrored.kill_kohort,
        mirrored.kill_kohort,
    ):
        mirrored.write()
        kill()
        mirrored.wait_until(lambda found, expected: len(found) > len(expected) - ROUND)

    mirrored.wait_until(lambda found, expected: len(found) >= len(expected))
    for found, expected in mirrored.copies():
        assert found == expected
