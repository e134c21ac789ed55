"""Limits on how fast connections come and topics change, over real sockets."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID
from tests.integration.test_client_quotas import ANONYMOUS, alter, described
from tests.interop.same_answers.each import Value
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.certificates import Authority
from tests.support.brokers.server_process import free_port
from tests.support.network.wire import RawClient, framed, request_body

THERE = "127.0.0.9"
"""An address that has a limit."""

NewLoop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture(params=[uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerThread]:
    new_loop: NewLoop = request.param
    with BrokerThread(tmp_path, loop_factory=new_loop) as made:
        yield made


def test_an_address_over_its_limit_is_not_served_and_loses_its_connection_later(
    broker: BrokerThread,
) -> None:
    with RawClient(broker.port) as client:
        assert alter(client, [("ip", THERE)], ("connection_creation_rate", 1.0)) == 0
        assert described(client, ("ip", 0, THERE)) == {
            (("ip", THERE),): {"connection_creation_rate": 1.0}
        }
        began = time.monotonic()
        made = [RawClient(broker.port, source=THERE) for _ in range(11)]
        assert made[9].is_answered()
        with pytest.raises(ConnectionError):
            made[10].is_answered()
        # To the end of the window that the first of them began.
        assert time.monotonic() - began >= 0.9
        assert client.is_answered()
        for one in made:
            one.close()
        # Others come as they like.
        with RawClient(broker.port) as other:
            assert other.is_answered()


def test_a_broker_stops_while_connections_are_held(broker: BrokerThread) -> None:
    with RawClient(broker.port) as client:
        assert alter(client, [("ip", None)], ("connection_creation_rate", 1.0)) == 0
    made = [RawClient(broker.port, source=THERE) for _ in range(30)]
    assert made[0].is_answered()
    broker.stop()
    assert made[-1].is_closed()
    for one in made:
        one.close()


def test_a_handshake_is_not_begun_with_an_address_over_its_limit(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    ports = free_port(), free_port()
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},SSL://127.0.0.1:{ports[1]}",
        "ssl.keystore.location": str(authority.issue("broker", "IP:127.0.0.1")),
    }
    with BrokerThread(
        tmp_path / "data", overrides=settings, loop_factory=uvloop.new_event_loop
    ) as broker:
        with RawClient(broker.port) as client:
            assert alter(client, [("ip", THERE)], ("connection_creation_rate", 1.0)) == 0
        made = [RawClient(ports[1], source=THERE) for _ in range(11)]
        made[0].send(b"nonsense")
        # The one that is served is told so by an alert.
        assert made[0].socket.recv(1) != b""
        made[10].send(b"nonsense")
        assert made[10].is_closed()
        for one in made:
            one.close()


def test_a_listener_over_its_limit_serves_all_who_come_and_lets_them_wait(tmp_path: Path) -> None:
    # asyncio's own loop accepts all that wait before it looks at anything else.
    with BrokerThread(tmp_path, loop_factory=uvloop.new_event_loop) as broker:
        server = broker.broker.network
        limited = server.limits._replace(max_connection_creation_rate=2)
        broker.call(lambda: server.set_limits(limited))
        began = time.monotonic()
        # Twenty are free, and each of the others takes half a second more.
        made = [RawClient(broker.port) for _ in range(23)]
        assert all(one.is_answered() for one in made)
        assert time.monotonic() - began >= 0.4
        for one in made:
            one.close()
        with RawClient(broker.port) as client:
            assert client.is_answered()


SLOW = 0.01
"""Partitions a second: the first one costs a minute and a half."""


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[BrokerThread]:
    """All clients of this broker owe a partition."""
    with BrokerThread(tmp_path) as made, RawClient(made.port) as client:
        assert alter(client, ANONYMOUS, ("controller_mutation_rate", SLOW)) == 0
        created = client.call(creation("owed"), 7, m.CreateTopicsResponse)
        assert (created.topics[0].error_code, created.throttle_time_ms) == (0, 0)
        yield made


def creation(name: str) -> m.CreateTopicsRequest:
    topic = m.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    return m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


GROWTH = m.CreatePartitionsRequest(
    topics=[m.CreatePartitionsTopic(name="owed", count=2, assignments=None)],
    timeout_ms=30_000,
    validate_only=False,
)
DELETION = m.DeleteTopicsRequest(
    topics=[m.DeleteTopicState(name="owed", topic_id=ZERO_UUID)], timeout_ms=30_000
)
OLD_DELETION = m.DeleteTopicsRequest(topic_names=["owed"], timeout_ms=30_000)
USE = m.MetadataRequest(
    topics=[m.MetadataRequestTopic(name="used")], allow_auto_topic_creation=True
)


@pytest.mark.parametrize(
    ("asked", "version", "response"),
    [
        (creation("new"), 7, m.CreateTopicsResponse),
        (creation("new"), 6, m.CreateTopicsResponse),
        (GROWTH, 3, m.CreatePartitionsResponse),
        (OLD_DELETION, 5, m.DeleteTopicsResponse),
        (DELETION, 6, m.DeleteTopicsResponse),
    ],
)
def test_who_owes_partitions_and_understands_it_is_refused(
    slow: BrokerThread, asked: object, version: int, response: type[Value]
) -> None:
    with RawClient(slow.port) as client, RawClient(slow.port) as other:
        answer: Value = client.call(asked, version, response)
        (outcome,) = outcomes(answer)
        assert outcome.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert 30_000 < answer.throttle_time_ms <= 89_000
        # The next request of this connection waits; those of others do not.
        client.send(framed(request_body(m.ApiVersionsRequest(), 0)))
        assert names(other) == {"owed"}
        client.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            client.receive()


@pytest.mark.parametrize(
    ("asked", "version", "response"),
    [
        (creation("new"), 5, m.CreateTopicsResponse),
        (GROWTH, 2, m.CreatePartitionsResponse),
        (OLD_DELETION, 4, m.DeleteTopicsResponse),
    ],
)
def test_who_owes_partitions_and_does_not_understand_it_is_served_and_waits(
    slow: BrokerThread, asked: object, version: int, response: type[Value]
) -> None:
    with RawClient(slow.port) as client:
        answer: Value = client.call(asked, version, response)
        (outcome,) = outcomes(answer)
        assert outcome.error_code == ErrorCode.NONE
        assert 130_000 < answer.throttle_time_ms <= 189_000


def test_who_owes_partitions_makes_no_topic_by_asking_for_it_and_does_not_wait(
    slow: BrokerThread,
) -> None:
    with RawClient(slow.port) as client:
        for version in (5, 12):
            answer = client.call(USE, version, m.MetadataResponse)
            assert answer.throttle_time_ms == 0
            assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert names(client) == {"owed"}


def outcomes(answer: Value) -> list[Value]:
    field = next(name for name in ("topics", "results", "responses") if hasattr(answer, name))
    found: list[Value] = getattr(answer, field)
    return found


def names(client: RawClient) -> set[str | None]:
    answer = client.call(m.MetadataRequest(topics=None), 5, m.MetadataResponse)
    return {topic.name for topic in answer.topics}
