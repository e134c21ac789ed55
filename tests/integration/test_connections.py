"""Connections of a whole broker over real sockets: order, back-pressure, limits, the end."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kohort.broker.app import StartError
from kohort.broker.storage.filesystem import OS_FILES
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.incremental_alter_configs import AlterableConfig, AlterConfigsResource
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.integration.conftest import LoopFactory
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.requests import create_topics, produce_request
from tests.support.network.wire import RawClient, framed, request_body, response_in
from tests.support.waiting import wait_until

MIB = 1024 * 1024
HEARTBEAT = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.fixture
def running(tmp_path: Path, loop_factory: LoopFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path, loop_factory=loop_factory) as running:
        yield running


def batch(value: bytes = b"value") -> bytes:
    return encode_batch([Record(value)])


def create_topic(port: int, name: str) -> None:
    with RawClient(port) as client:
        create_topics(client, name)


def fetch(
    topic: str, *, offset: int = 0, max_wait_ms: int = 0, min_bytes: int = 1
) -> m.FetchRequest:
    return m.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=50 * MIB,
        topics=[
            m.FetchTopic(
                topic=topic,
                partitions=[
                    m.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=50 * MIB)
                ],
            )
        ],
    )


def fetched_bytes(response: m.FetchResponse) -> int:
    ((partition,),) = [topic.partitions for topic in response.responses]
    assert partition.error_code == 0
    return len(partition.records or b"")


def used_bytes(running: BrokerThread) -> int:
    return running.call(lambda: running.broker.network.memory.used_bytes)


def connection_count(running: BrokerThread) -> int:
    return running.call(lambda: running.broker.network.connection_count)


def test_thousands_of_pipelined_requests_are_answered_in_order(running: BrokerThread) -> None:
    count = 20_000
    with RawClient(running.port) as client:
        sent = 0
        for answered in range(count):
            if sent - answered < 500:
                frames = (
                    framed(request_body(HEARTBEAT, 4, correlation_id=number))
                    for number in range(sent, min(sent + 1_000, count))
                )
                client.send(b"".join(frames))
                sent = min(sent + 1_000, count)
            response_in(client.receive(), m.HeartbeatResponse, 4, correlation_id=answered)


def test_a_client_that_sends_ahead_of_a_parked_request_and_leaves_is_noticed(
    running: BrokerThread,
) -> None:
    """Although its connection is not being read."""
    create_topic(running.port, "t")
    stats = running.broker.services.purgatory.stats
    with RawClient(running.port) as client:
        parked = framed(request_body(fetch("t", max_wait_ms=60_000), 11))
        client.send(parked * 3)
        wait_until(
            lambda: running.call(stats).get("Fetch", {}).get("delayed") == 1, "a parked fetch"
        )
    wait_until(lambda: connection_count(running) == 0, "no connection left")
    assert running.call(stats)["Fetch"] == {"watched": 0, "delayed": 0}


def test_a_client_that_does_not_read_holds_up_no_client_and_no_memory(
    running: BrokerThread,
) -> None:
    create_topic(running.port, "t")
    requests = 60
    with RawClient(running.port) as client:
        for _ in range(8):
            client.call(produce_request("t", batch(value=bytes(MIB // 2))), 9, m.ProduceResponse)
        size = fetched_bytes(client.call(fetch("t"), 11, m.FetchResponse))
        assert size > 4 * MIB
    with RawClient(running.port) as slow, RawClient(running.port) as other:
        for number in range(requests):
            slow.send(framed(request_body(fetch("t"), 11, correlation_id=number)))
        wait_until(lambda: OS_FILES.range_count > 0, "ranges on their way")
        counts = set()
        for _ in range(50):
            assert other.is_answered()
            counts.add(OS_FILES.range_count)
        unsent = running.call(lambda: running.broker.network.unsent.total_bytes)
        # What the kernel sends from the log's files is no memory of ours, and there is no more.
        assert unsent == 0
        # There is none for a moment, between two answers for which the kernel still has room.
        assert max(counts) <= 1, "one answer, not sixty"
        for number in range(requests):
            message = response_in(slow.receive(), m.FetchResponse, 11, correlation_id=number)
            assert fetched_bytes(message) == size
        wait_until(lambda: OS_FILES.range_count == 0, "no range left")


def test_large_frames_arrive_unharmed_from_several_clients_at_once(
    running: BrokerThread,
) -> None:
    create_topic(running.port, "t")
    values = [bytes([number]) * (900_000 + number) for number in range(12)]
    with ExitStack() as stack:
        clients = [stack.enter_context(RawClient(running.port)) for _ in range(3)]
        frames = [
            framed(request_body(produce_request("t", batch(value=value)), 9)) for value in values
        ]
        for start in range(0, 1_000_000, 70_000):
            for number, client in enumerate(clients):
                client.send(frames[number][start : start + 70_000])
        for number in range(3, len(values)):
            clients[number % 3].send(frames[number])
        for number in range(len(values)):
            message = response_in(clients[number % 3].receive(), m.ProduceResponse, 9)
            ((partition,),) = [topic.partition_responses for topic in message.responses]
            assert partition.error_code == 0
        client = clients[0]
        body = client.ask(fetch("t"), 11)
    for value in values:
        assert value in body
    assert used_bytes(running) == 0


def test_hosts_with_limits_of_their_own_may_be_names(
    tmp_path: Path, loop_factory: LoopFactory
) -> None:
    overrides = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "localhost:1"}
    with (
        BrokerThread(tmp_path, overrides=overrides, loop_factory=loop_factory) as running,
        RawClient(running.port) as first,
    ):
        assert first.is_answered()
        with RawClient(running.port) as second:
            assert second.is_closed()


def test_a_host_with_a_limit_that_is_not_found_stops_the_start(tmp_path: Path) -> None:
    overrides = {"max.connections.per.ip.overrides": "nowhere.invalid:1"}
    with (
        pytest.raises(StartError, match=r"per\.ip\.overrides: the host 'nowhere\.invalid' cannot"),
        BrokerThread(tmp_path, overrides=overrides),
    ):
        pass


def test_limits_of_connections_are_changed_while_the_broker_runs(
    tmp_path: Path, loop_factory: LoopFactory
) -> None:
    with (
        BrokerThread(tmp_path, loop_factory=loop_factory) as running,
        RawClient(running.port) as admin,
    ):

        def set_limit(name: str, value: str | None) -> None:
            config = AlterableConfig(name=name, config_operation=0 if value else 1, value=value)
            resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
            request = m.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
            (answer,) = admin.call(request, 1, m.IncrementalAlterConfigsResponse).responses
            assert answer.error_code == ErrorCode.NONE, answer.error_message

        def is_let_in() -> bool:
            wait_until(lambda: connection_count(running) == 1, "one connection")
            try:
                with RawClient(running.port) as second:
                    return second.is_answered()
            except ConnectionError:
                return False

        assert is_let_in()
        for name, value in (
            ("max.connections", "1"),
            ("max.connections.per.ip", "1"),
            ("max.connections.per.ip.overrides", "127.0.0.1:1"),
        ):
            set_limit(name, value)
            assert not is_let_in(), name
            assert admin.is_answered(), "who is connected stays"
            set_limit(name, None)
            assert is_let_in(), name
        set_limit("max.connections.per.ip.overrides", "localhost:1")
        wait_until(lambda: not is_let_in(), "the name to be looked up")
        set_limit("max.connections.per.ip.overrides", "nowhere.invalid:1")
        assert is_let_in()


def test_stopping_answers_what_is_parked_and_is_over_soon(
    tmp_path: Path, loop_factory: LoopFactory
) -> None:
    overrides = {"kohort.shutdown.timeout.ms": "50000"}
    with (
        BrokerThread(tmp_path, overrides=overrides, loop_factory=loop_factory) as running,
        ExitStack() as stack,
    ):
        create_topic(running.port, "t")
        idle, parked, partial = (stack.enter_context(RawClient(running.port)) for _ in range(3))
        parked.send(framed(request_body(fetch("t", max_wait_ms=300_000), 11)))
        partial.send(framed(request_body(HEARTBEAT, 4))[:20])
        stats = running.broker.services.purgatory.stats
        wait_until(
            lambda: running.call(stats).get("Fetch", {}).get("delayed") == 1, "a parked fetch"
        )
        began_s = time.monotonic()
        running.stop()
        assert time.monotonic() - began_s < 40
        assert fetched_bytes(response_in(parked.receive(), m.FetchResponse, 11)) == 0
        assert all(client.is_closed() for client in (idle, parked, partial))
        with pytest.raises(ConnectionRefusedError):
            RawClient(running.port)


def test_localhost_is_served_at_all_its_addresses(
    tmp_path: Path, loop_factory: LoopFactory
) -> None:
    overrides = {"listeners": "PLAINTEXT://localhost:0"}
    with BrokerThread(tmp_path, overrides=overrides, loop_factory=loop_factory) as running:
        hosts = {
            str(address[0])
            for *_, address in socket.getaddrinfo("localhost", None, type=socket.SOCK_STREAM)
        }
        for host in hosts:
            with RawClient(running.port, host=host) as client:
                assert client.is_answered()
