"""Answers that never arrive: the client sends again, and the broker knows what it has already."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from kohort.cli import main
from tests.interop.conftest import CLIENT_NAMES, BuildClient
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.clients.confluent_client import admin_client, create_topics
from tests.support.clients.model import Record
from tests.support.network.relay import Relay, Spoiled

LOSSES = 3
PRODUCE = 0


class LossyRelay(Relay):
    """Loses the first answers to Produce requests, on which the broker has acted."""

    def __init__(self, port: int, upstream_port: int) -> None:
        super().__init__(port, upstream_port)
        self.lost = 0
        self.spoil = self._lose

    def _lose(self, api_key: int, _: bytes) -> Spoiled | None:
        if api_key != PRODUCE or self.lost == LOSSES:
            return None
        self.lost += 1
        return Spoiled(b"", hangs_up=True)


@pytest.fixture
def proxy(
    tmp_path: Path, own_broker_kind: type[KafkaServer | KohortServer]
) -> Iterator[LossyRelay]:
    """In front of a broker that tells its clients to come through it."""
    port = free_port()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with (
        own_broker_kind(tmp_path, overrides=advertised) as broker,
        LossyRelay(port, broker.port).in_thread() as proxy,
    ):
        yield proxy


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in {"confluent", "java"} else pytest.mark.long)
        for name in CLIENT_NAMES
    ],
)
def test_an_idempotent_producer_that_sends_again_leaves_each_record_once(
    proxy: LossyRelay, build_client: BuildClient, name: str
) -> None:
    client = build_client(name, proxy.bootstrap)
    admin = admin_client(proxy.bootstrap)
    create_topics(admin, NewTopic("once", 1, 1))
    # More than one batch, so that answers are lost in the middle of a sequence.
    sent = [Record(b"%04d" % number + b"x" * 2000) for number in range(600)]

    client.produce("once", sent, idempotent=True)

    assert proxy.lost == LOSSES
    client.produce("once", [Record(b"the last")])
    received = client.consume("once", len(sent) + 1)
    assert [record.value for record in received] == [
        *(record.value for record in sent),
        b"the last",
    ]


def test_the_command_that_sends_several_batches_at_a_time_leaves_each_line_once(
    proxy: LossyRelay, build_client: BuildClient, tmp_path: Path
) -> None:
    client = build_client("confluent", proxy.bootstrap)
    admin = admin_client(proxy.bootstrap)
    create_topics(admin, NewTopic("lines", 1, 1))
    lines = [b"%05d" % number + b"x" * 1000 for number in range(20_000)]
    given = tmp_path / "given"
    given.write_bytes(b"\n".join(lines))
    where = ("--bootstrap-server", proxy.bootstrap)

    assert main(["produce", "lines", "--file", str(given), *where]) == 0

    assert proxy.lost == LOSSES
    assert [record.value for record in client.consume("lines", len(lines))] == lines
