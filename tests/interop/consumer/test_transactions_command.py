"""`kohort transactions` as its users run it, beside either broker and a real producer."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.interop.consumer.members import Topics
from tests.support.brokers.server_process import ServerProcess
from tests.support.processes.commands import Said, said_here
from tests.support.waiting import wait_until

TIMEOUT_S = 60


class Scene:
    """A transaction that is open in a topic of one partition, behind one record that is not."""

    def __init__(self, bootstrap: str, topics: Topics, printed: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = bootstrap
        self._printed = printed
        self.topic = topics.create(1)
        topics.fill(self.topic, [b"plain"])
        self.transactional_id = f"id-{uuid.uuid4().hex[:8]}"
        self.producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": self.transactional_id}
        )
        self.producer.init_transactions(TIMEOUT_S)
        self.producer.begin_transaction()
        self.producer.produce(self.topic, b"undecided", partition=0)
        assert not self.producer.flush(TIMEOUT_S)

    def ask(self, command: str, *arguments: str) -> Said[str]:
        where = ("--bootstrap-server", self.bootstrap, "--timeout", "60")
        return said_here(self._printed, "transactions", command, *arguments, *where)

    def json(self, command: str, *arguments: str) -> Any:  # noqa: ANN401
        return self.ask(command, *arguments, "--json").json


@pytest.fixture
def scene(
    any_broker: ServerProcess, topics: Topics, capsys: pytest.CaptureFixture[str]
) -> Iterator[Scene]:
    made = Scene(any_broker.bootstrap, topics, capsys)
    yield made
    # Its thread must not outlive the broker.
    del made.producer


def open_ids(scene: Scene) -> set[str]:
    listed = scene.json("list", "--open-for", "0.001")["transactions"]
    return {one["transactional_id"] for one in listed}


def test_an_open_transaction_is_listed_described_and_named_as_what_holds_readers_back(
    scene: Scene,
) -> None:
    (listed,) = [
        one
        for one in scene.json("list", "--state", "Ongoing")["transactions"]
        if one["transactional_id"] == scene.transactional_id
    ]
    assert scene.transactional_id in open_ids(scene)
    described = scene.json("describe", scene.transactional_id)
    why = scene.json("why", scene.topic, "0")

    assert described["state"] == listed["state"] == "Ongoing"
    assert described["partitions"] == [[scene.topic, 0]]
    assert (why["high_watermark"], why["last_stable_offset"]) == (2, 1)
    (holder,) = why["open"]
    assert holder["transactional_id"] == scene.transactional_id
    assert holder["producer_id"] == listed["producer_id"] == described["producer_id"]
    assert holder["start_offset"] == 1
    told = scene.ask("why", scene.topic, "0").out
    # A broker of ours also tells whose client it is, between the two.
    assert f"before its end: {scene.transactional_id} " in told
    assert "has a transaction open from there" in told

    scene.producer.commit_transaction(TIMEOUT_S)

    def is_over() -> bool:
        return bool(scene.json("describe", scene.transactional_id)["state"] == "CompleteCommit")

    # A Kafka writes its markers after it has answered.
    wait_until(is_over, "the markers are written")
    assert scene.transactional_id not in open_ids(scene)
    assert scene.json("why", scene.topic, "0")["open"] == []
    assert "No transaction is open" in scene.ask("why", scene.topic, "0").out
    assert "No transaction is open" in scene.ask("describe", scene.transactional_id).out


@pytest.mark.long
def test_a_transaction_that_its_coordinator_knows_is_aborted_only_by_force(scene: Scene) -> None:
    refused = scene.ask("abort", scene.topic, "0", "1")
    nothing = scene.ask("abort", scene.topic, "0", "0", "--force")
    aborted = scene.ask("abort", scene.topic, "0", "1", "--force")

    assert refused.code == 2
    assert scene.transactional_id in refused.err
    assert nothing.code == 1
    assert (aborted.code, aborted.err) == (0, "")
    assert scene.json("why", scene.topic, "0")["open"] == []


def test_what_there_is_not_is_said_so(scene: Scene) -> None:
    unknown = scene.ask("describe", "no-such-id")
    assert (unknown.code, unknown.out) == (1, "")
    assert "unknown transactional id 'no-such-id'" in unknown.err
    no_partition = scene.ask("why", scene.topic, "7")
    assert no_partition.code == 1
    assert f"no partition 7 of topic '{scene.topic}'" in no_partition.err
    wrong = scene.ask("why", scene.topic, "-1")
    assert wrong.code == 2
