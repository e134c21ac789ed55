"""A Kafka Streams application that joins, with processing.guarantee=exactly_once_v2: streams whose
windows are stores, and tables. It is killed as its broker is, and each pair is told once.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.interop.trouble import Scene, scene
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.model import Record
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

PARTITIONS = 2
ROUND = 100
"""Keys between two kills."""
KILLS = 20
"""Kills of the broker, and as many of the application."""
RESULTS = ("pairs", "rows")


class Joining:
    """The application, and the results of its two joins."""

    def __init__(self, stage: Scene, stack: ExitStack) -> None:
        self.stage = stage
        self._client = ConfluentClient(stage.bootstrap)
        self._stack = stack
        self._given = 0
        """Keys that both sides have."""
        self.instance = self._start()

    def _start(self) -> JavaProcess:
        instance = self._stack.enter_context(JavaProcess("Joins", "apps"))
        self._stack.callback(instance.kill)
        config = self.stage.exactly_once_streams("joining")
        instance.call(op="start", config=config)
        return instance

    def give(self, side: str) -> None:
        """The next round's keys, of which nothing may have been read when this returns."""
        records = [
            Record(f"{side} {number}".encode(), key=b"%d" % number, partition=number % PARTITIONS)
            for number in range(self._given, self._given + ROUND)
        ]
        self._client.produce(side, records, idempotent=True)

    def end_round(self) -> None:
        self._given += ROUND

    def told(self, result: str) -> list[str]:
        records = self._client.read_to_end(result, "read_committed")
        return sorted((record.value or b"").decode() for record in records)

    def wait_told(self, count: int) -> None:
        wait_until(
            lambda: all(len(self.told(result)) >= count for result in RESULTS),
            lambda: f"{ {result: len(self.told(result)) for result in RESULTS} }",
            timeout_s=120,
        )

    def check(self) -> None:
        """Each key's pair and row, once."""
        expected = sorted(f"left {number} and right {number}" for number in range(self._given))
        self.wait_told(len(expected))
        for result in RESULTS:
            assert self.told(result) == expected

    def kill_broker(self) -> None:
        self.stage.server.kill()
        self.stage.server.start()

    def kill_application(self) -> None:
        self.instance.kill()
        self.instance = self._start()


@pytest.fixture
def joining(tmp_path: Path, own_broker_kind: type[KafkaServer | KohortServer]) -> Iterator[Joining]:
    with scene(tmp_path, own_broker_kind) as stage, ExitStack() as stack:
        admin = admin_client(stage.bootstrap)
        topics = [NewTopic(name, PARTITIONS, 1) for name in ("left", "right", *RESULTS)]
        create_topics(admin, *topics)
        yield Joining(stage, stack)


@pytest.mark.long
def test_every_pair_is_told_once_whichever_side_is_killed_meanwhile(joining: Joining) -> None:
    killers = cycle((joining.kill_broker, joining.kill_application))
    for number, kill in enumerate(islice(killers, 2 * KILLS)):
        joining.give("left")
        # Something of the last round has been told, and hardly all of it.
        joining.wait_told(number * ROUND - ROUND + 1)
        joining.give("right")
        joining.end_round()
        kill()

    joining.check()
