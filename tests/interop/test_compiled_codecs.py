"""What real clients send is read by the compiled codecs, which never leave it to Python.

A broker of the tests is strict: where a compiled codec gives up on a request that is well formed,
the connection is closed, and `KohortServer` fails the test for what its log says then.
"""

import re
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import ShareConsumer
from confluent_kafka.admin import NewTopic

from accelerated.codecs.generator import hot_pairs
from kohort.protocol.message import schema_of
from tests.interop.conftest import BuildClient
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import free_port
from tests.support.clients.confluent_client import QUIET, admin_client, create_topics
from tests.support.clients.java_share import JavaShareConsumer
from tests.support.clients.java_transactions import JavaTransactions
from tests.support.clients.kohort_client import KohortMember
from tests.support.clients.model import ANY_SEAT, Member, Record
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

Served = dict[tuple[str, int], int]
"""How many requests of each API and version were answered."""

COMPILED = {
    (schema_of(message).name.removesuffix("Request"), version)
    for message, version, is_read in hot_pairs()
    if is_read
}
_COUNT = re.compile(r'^kohort_requests_total\{api="(\w+)",version="(\d+)"\} (\d+)', re.MULTILINE)

_CURRENT = {("FindCoordinator", 6), ("Metadata", 13), ("Fetch", 18)}
_MEMBER = {("JoinGroup", 9), ("SyncGroup", 5), ("Heartbeat", 4)}
_CLASSIC_MEMBER = {("JoinGroup", 5), ("SyncGroup", 3), ("Heartbeat", 3)}
SENT = {
    "aiokafka": {("JoinGroup", 5), ("SyncGroup", 3)},
    "confluent": {
        *_CLASSIC_MEMBER,
        ("Fetch", 16), ("Metadata", 13), ("OffsetCommit", 9), ("OffsetFetch", 9), ("Produce", 10),
    },
    "kafka-python": {
        ("FindCoordinator", 6), ("Heartbeat", 4), ("Metadata", 13), ("SyncGroup", 5),
    },
    "java": {
        *_CURRENT, *_MEMBER, ("OffsetCommit", 9), ("OffsetFetch", 9), ("Produce", 13),
    },
    "kohort": {*_CURRENT, *_MEMBER, ("OffsetCommit", 10), ("OffsetFetch", 10)},
}  # fmt: skip
"""Requests of each library that have a compiled codec in the version that it chooses."""


class Broker(KohortServer):
    def served(self) -> Served:
        url = f"http://127.0.0.1:{self.overrides['kohort.metrics.port']}/metrics"
        with urllib.request.urlopen(url, timeout=30) as answer:
            counts = _COUNT.findall(answer.read().decode())
        return {(api, int(version)): int(count) for api, version, count in counts}

    def served_since(self, before: Served) -> set[tuple[str, int]]:
        """The APIs and versions, of those that have a compiled codec."""
        return {
            one for one, count in self.served().items() if count > before.get(one, 0)
        } & COMPILED


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    overrides = {"kohort.metrics.port": str(free_port())}
    with Broker(tmp_path_factory.mktemp("compiled"), overrides=overrides) as server:
        yield server


@pytest.mark.parametrize("name", SENT)
def test_what_a_member_and_a_producer_send_is_read_by_what_is_compiled(
    broker: Broker, build_client: BuildClient, name: str
) -> None:
    create_topics(admin_client(broker.bootstrap), NewTopic(name, 1, 1))
    is_ours = name == "kohort"  # Which has no producer.
    client = build_client("confluent" if is_ours else name, broker.bootstrap)
    before = broker.served()
    client.produce(name, [Record(b"value")] * 3)
    if is_ours:
        before = broker.served()
        joined: Member = KohortMember(broker.bootstrap, name, name, ANY_SEAT)
    else:
        joined = client.join(name, name)
    with joined as member:
        wait_until(lambda: len(member.records()) == 3, "the records")
        commits = {one for one in SENT[name] if one[0] == "OffsetCommit"}
        wait_until(
            lambda: SENT[name] - commits <= broker.served_since(before),
            lambda: str(broker.served_since(before)),
        )
    assert broker.served_since(before) >= SENT[name]
    broker.check_codecs()


def test_what_a_transaction_sends_is_read_by_what_is_compiled(
    broker: Broker, java_clients: JavaProcess
) -> None:
    create_topics(admin_client(broker.bootstrap), NewTopic("transfers", 1, 1))
    before = broker.served()
    producer = JavaTransactions(broker.bootstrap, java_clients, "mover")
    producer.begin()
    producer.send("transfers", "value")
    producer.send_offsets("readers", [("transfers", 0, 1)])
    producer.commit()
    producer.close()
    sent = {("EndTxn", 5), ("FindCoordinator", 6), ("Produce", 13), ("TxnOffsetCommit", 6)}
    assert broker.served_since(before) >= sent
    broker.check_codecs()


def test_what_share_consumers_send_is_read_by_what_is_compiled(
    broker: Broker, build_client: BuildClient, java_clients: JavaProcess
) -> None:
    create_topics(admin_client(broker.bootstrap), NewTopic("shared", 1, 1))
    producer = build_client("confluent", broker.bootstrap)
    before = broker.served()
    java = JavaShareConsumer(java_clients, broker.bootstrap, "java-share", "shared")
    config = {"bootstrap.servers": broker.bootstrap, "group.id": "librdkafka-share", **QUIET}
    with ShareConsumer(config) as confluent:
        confluent.subscribe(["shared"])

        def are_delivered() -> bool:
            producer.produce("shared", [Record(b"value")])
            polled = (java.poll(500), confluent.poll(0.5))
            java.commit()
            confluent.commit_sync(10.0)
            return all(polled)

        wait_until(are_delivered, "records of both")
        java.close()
    sent = {(api, version) for api in ("ShareFetch", "ShareAcknowledge") for version in (1, 2)}
    assert broker.served_since(before) >= sent
    broker.check_codecs()
