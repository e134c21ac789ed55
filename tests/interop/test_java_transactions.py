"""Kafka's own producer in transactions, which it ends as Kafka 4 does (KIP-890): the same lives on
a real Kafka and on a Kohort, and across the end of a Kohort.
"""

import uuid
from typing import Final

import pytest
from confluent_kafka.admin import NewTopic

from tests.interop.same_answers.pair import Twins
from tests.support import messages as m
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import admin_client, create_topics
from tests.support.clients.java_transactions import (
    LEVELS,
    JavaTransactions,
    fence,
    read_to_end,
    values_of,
)
from tests.support.clients.model import Isolation
from tests.support.network.wire import RawClient
from tests.support.processes.java_process import JavaProcess
from tests.support.processes.line_process import RemoteError
from tests.support.waiting import wait_until

COMMITTED: Final[Isolation] = "read_committed"


class Scene:
    """A broker, a topic of two partitions, a transactional id and a group of the test's own."""

    def __init__(self, server: ServerProcess, process: JavaProcess) -> None:
        self.server = server
        self.bootstrap = server.bootstrap
        self._process = process
        self.topic = self.id = self.group = f"java-{uuid.uuid4().hex[:12]}"
        admin = admin_client(self.bootstrap)
        create_topics(admin, NewTopic(self.topic, 2, 1))

    def producer(self, *, timeout_ms: int = 60_000) -> JavaTransactions:
        return JavaTransactions(self.bootstrap, self._process, self.id, timeout_ms=timeout_ms)

    def producer_of(self, transactional_id: str) -> JavaTransactions:
        return JavaTransactions(self.bootstrap, self._process, transactional_id)

    def read(self, isolation: Isolation = COMMITTED) -> list[str]:
        records = read_to_end(self.bootstrap, self._process, self.topic, isolation)
        records.sort(key=lambda record: record.partition or 0)
        return values_of(records)

    def wait_read(self, expected: list[str]) -> None:
        """A Kafka writes its markers after it has answered."""
        wait_until(lambda: self.read() == expected, lambda: f"{self.read()}: {expected}")

    def position(self) -> int:
        """The group's in partition 0, or -1."""
        wanted = m.OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0])
        request = m.OffsetFetchRequest(group_id=self.group, topics=[wanted], require_stable=False)
        find = m.FindCoordinatorRequest(key=self.group, key_type=0)
        found: list[m.OffsetFetchResponse] = []

        def is_answered() -> bool:
            """A Kafka makes the topic of the groups when the first one is looked for."""
            client.call(find, 3, m.FindCoordinatorResponse)
            found[:] = [client.call(request, 7, m.OffsetFetchResponse)]
            return found[0].error_code == 0

        with RawClient(self.server.port) as client:
            wait_until(is_answered, "the coordinator")
        return found[0].topics[0].partitions[0].committed_offset


@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.long), "kohort"])
def scene(request: pytest.FixtureRequest, twins: Twins, java_clients: JavaProcess) -> Scene:
    return Scene(getattr(twins, request.param), java_clients)


def test_what_is_committed_is_read_by_all_and_what_is_aborted_by_few(scene: Scene) -> None:
    producer = scene.producer()
    for number, commits in enumerate([True, False, True, False, True]):
        producer.begin()
        producer.send(scene.topic, f"{number} in 0")
        producer.send(scene.topic, f"{number} in 1", partition=1)
        producer.commit() if commits else producer.abort()
    producer.close()

    everything = [f"{number} in {partition}" for partition in range(2) for number in range(5)]
    scene.wait_read([value for value in everything if int(value[0]) % 2 == 0])
    assert scene.read("read_uncommitted") == everything


def test_positions_are_committed_with_what_was_made_of_them_or_not_at_all(scene: Scene) -> None:
    producer = scene.producer()
    for position, commits in [(3, True), (5, False), (7, True)]:
        before = scene.position()
        producer.begin()
        producer.send(scene.topic, f"up to {position}")
        producer.send_offsets(scene.group, [(scene.topic, 0, position)])
        assert scene.position() == before
        producer.commit() if commits else producer.abort()
        expected = position if commits else before
        wait_until(lambda: scene.position() == expected, "the transaction has ended")  # noqa: B023
    # A transaction may carry positions alone.
    producer.begin()
    producer.send_offsets(scene.group, [(scene.topic, 0, 9)])
    producer.commit()
    producer.close()

    wait_until(lambda: scene.position() == 9, "positions alone")
    scene.wait_read(["up to 3", "up to 7"])


def test_a_member_that_the_group_does_not_know_commits_no_positions(scene: Scene) -> None:
    producer = scene.producer()
    producer.begin()
    producer.send(scene.topic, "never")
    with pytest.raises(RemoteError, match="CommitFailed"):
        producer.send_offsets(scene.group, [(scene.topic, 0, 3)], member="nobody", generation=1)
    producer.abort()
    producer.begin()
    producer.send(scene.topic, "after")
    producer.commit()
    producer.close()

    scene.wait_read(["after"])
    assert scene.position() == -1


def test_a_second_instance_fences_the_first_and_ends_its_transaction(scene: Scene) -> None:
    first = scene.producer()
    first.begin()
    first.send(scene.topic, "of the first")
    second = scene.producer()
    scene.wait_read([])
    second.begin()
    second.send(scene.topic, "of the second")

    with pytest.raises(RemoteError, match=r"Fenced|ProducerEpoch"):
        first.send(scene.topic, "too late")
    with pytest.raises(RemoteError, match=r"Fenced|ProducerEpoch"):
        first.commit()
    second.commit()
    first.close()
    second.close()

    scene.wait_read(["of the second"])
    assert scene.read("read_uncommitted") == ["of the first", "of the second"]


def test_an_operator_fences_a_producer_and_its_transaction_is_aborted(
    scene: Scene, java_clients: JavaProcess
) -> None:
    fenced = scene.producer()
    fenced.begin()
    fenced.send(scene.topic, "of the fenced one")
    fence(scene.bootstrap, java_clients, scene.id)
    with pytest.raises(RemoteError, match=r"Fenced|ProducerEpoch"):
        fenced.commit()
    fenced.close()
    successor = scene.producer()
    successor.begin()
    successor.send(scene.topic, "of its successor")
    successor.commit()
    fence(scene.bootstrap, java_clients, scene.id)
    with pytest.raises(RemoteError, match=r"Fenced|ProducerEpoch"):
        send_and_commit(successor, scene.topic, "too late")
    successor.close()

    scene.wait_read(["of its successor"])


def send_and_commit(producer: JavaTransactions, topic: str, value: str) -> None:
    producer.begin()
    producer.send(topic, value)
    producer.commit()


def time_out(scene: Scene) -> JavaTransactions:
    """A producer whose transaction has been aborted, which it has not heard of."""
    slow, other = scene.producer(timeout_ms=1_000), scene.producer_of(f"{scene.id}-other")
    slow.begin()
    assert slow.send(scene.topic, "slow") == [0]
    other.begin()
    other.send(scene.topic, "behind it")
    other.commit()
    other.close()
    # Until then readers of committed records are held back.
    scene.wait_read(["behind it"])
    return slow


def test_a_producer_that_aborts_what_took_too_long_goes_on(scene: Scene) -> None:
    producer = time_out(scene)
    producer.abort()
    producer.begin()
    producer.send(scene.topic, "in time")
    producer.commit()
    producer.close()

    scene.wait_read(["behind it", "in time"])


def test_a_producer_that_commits_what_took_too_long_is_told_and_replaced(scene: Scene) -> None:
    producer = time_out(scene)
    with pytest.raises(RemoteError, match="InvalidTxnState"):
        producer.commit()
    producer.close()
    successor = scene.producer()
    successor.begin()
    successor.send(scene.topic, "in time")
    successor.commit()
    successor.close()

    scene.wait_read(["behind it", "in time"])


@pytest.fixture
def own_scene(own_broker: ServerProcess, java_clients: JavaProcess) -> Scene:
    return Scene(own_broker, java_clients)


@pytest.mark.long
def test_a_transaction_goes_on_after_the_broker_was_killed(own_scene: Scene) -> None:
    scene, server = own_scene, own_scene.server
    producer = scene.producer()
    expected: list[str] = []
    for number, commits in enumerate([True, False]):
        producer.begin()
        producer.send(scene.topic, f"{number} before")
        producer.send_offsets(scene.group, [(scene.topic, 0, number)])
        server.kill()
        server.start()
        assert scene.read() == expected
        producer.send(scene.topic, f"{number} after")
        if commits:
            producer.commit()
            expected += [f"{number} before", f"{number} after"]
        else:
            producer.abort()
        server.kill()
        server.start()
        assert scene.read() == expected
        assert scene.position() == (number if commits else number - 1)
    producer.close()

    assert len(scene.read("read_uncommitted")) == 4


@pytest.mark.long
def test_a_transaction_whose_producer_and_broker_were_killed_is_aborted_by_the_next_producer(
    own_scene: Scene,
) -> None:
    scene, server = own_scene, own_scene.server
    with JavaProcess("ClientDriver", "broker") as process:
        first = JavaTransactions(scene.bootstrap, process, scene.id)
        first.begin()
        first.send(scene.topic, "left behind")
        process.kill()
    server.kill()
    server.start()
    second = scene.producer()
    assert scene.read() == []
    second.begin()
    second.send(scene.topic, "new")
    second.commit()
    second.close()

    assert [scene.read(level) for level in LEVELS] == [["left behind", "new"], ["new"]]
