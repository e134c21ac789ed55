"""kill -9 exactly between the steps of a transaction's end, under a client that waits for it.

Every point and every state of the disk is in `tests/simulation/test_transaction_points.py`; here a
few of them are real: a process, a disk, and a producer that asks again.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.crash.dying_broker import POINTS
from tests.support.brokers.kohort_server import KohortServer
from tests.support.clients.whole_topics import read_whole

pytestmark = pytest.mark.long

PARTITIONS = 3
TIMEOUT_S = 60
CONFIG = {
    "transaction.timeout.ms": 60_000,
    "linger.ms": 0,
    "reconnect.backoff.max.ms": 100,
    "log_level": 0,
}


class DyingServer(KohortServer):
    """Dies at a point, in its first life."""

    point: str | None = None

    def command(self) -> list[str]:
        command = super().command()
        if self.point is not None:
            at = command.index("kohort")
            command[at : at + 1] = ["tests.crash.dying_broker", self.point]
        return command

    def wait_dead(self) -> None:
        assert self._process is not None
        self._process.wait(TIMEOUT_S)


def read_committed(bootstrap: str) -> list[bytes]:
    """All values up to the ends of the partitions: nothing is undecided, or this would fail."""
    places = [("t", index) for index in range(PARTITIONS)]
    found = []
    for _, message in read_whole(bootstrap, places, "read_committed", timeout_s=TIMEOUT_S):
        value = message.value()
        assert value is not None
        found.append(value)
    return found


def end(producer: Producer, *, commit: bool) -> None:
    """Ask until it is answered."""
    while True:
        try:
            if commit:
                producer.commit_transaction(10)
            else:
                producer.abort_transaction(10)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


@pytest.mark.parametrize("flush", ["cached", "forced"])
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_between_the_steps_of_an_end(
    point: str, commit: bool, flush: str, tmp_path: Path
) -> None:
    overrides = {"transaction.state.log.num.partitions": "1"}
    if flush == "forced":
        overrides["log.flush.interval.messages"] = "1"
    server = DyingServer(tmp_path, overrides=overrides)
    server.point = point
    with server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS)])["t"].result(TIMEOUT_S)
        producer = Producer(
            CONFIG | {"bootstrap.servers": server.bootstrap, "transactional.id": "id"}
        )
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for index in range(PARTITIONS):
            producer.produce("t", b"%d" % index, partition=index)
        assert producer.flush(TIMEOUT_S) == 0
        # Markers that need not wait for the disk are written behind the answer.
        is_answered = False
        with suppress(KafkaException):
            (producer.commit_transaction if commit else producer.abort_transaction)(0.5)
            is_answered = True
        assert not is_answered or (point != "decided" and flush == "cached")
        server.wait_dead()
        server.point = None
        server.start()
        if not is_answered:
            end(producer, commit=commit)
        producer.begin_transaction()
        producer.produce("t", b"last", partition=0)
        end(producer, commit=False)
        assert sorted(read_committed(server.bootstrap)) == ([b"0", b"1", b"2"] if commit else [])
