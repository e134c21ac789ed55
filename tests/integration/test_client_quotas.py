"""Limits on clients in a whole broker: kept, told, and kept to by connections."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.client_quotas import EntityData, EntryData
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.requests import create_topics, fetch_request, produce_request
from tests.support.network.wire import RawClient, framed, request_body, response_in

Parts: TypeAlias = Sequence[tuple[str, str | None]]
"""Types and names of an entity; None for the default."""

ANONYMOUS: Parts = [("user", "ANONYMOUS")]
LIMIT = 10_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path) as made:
        with RawClient(made.port) as client:
            create_topics(client, "t")
        yield made


def alter(client: RawClient, entity: Parts, *limits: tuple[str, float | None]) -> int:
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[m.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in limits],
    )
    request = m.AlterClientQuotasRequest(entries=[entry], validate_only=False)
    (result,) = client.call(request, 1, m.AlterClientQuotasResponse).entries
    return result.error_code


def described(client: RawClient) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    """Return all limits by entity."""
    request = m.DescribeClientQuotasRequest(components=[], strict=False)
    return {
        tuple((one.entity_type, one.entity_name) for one in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in client.call(request, 1, m.DescribeClientQuotasResponse).entries or ()
    }


def produced(byte_count: int, *, acks: int = 1) -> m.ProduceRequest:
    now_ms = int(time.time() * 1_000)
    batch = encode_batch([Record(b"v" * byte_count, None, (), now_ms)])
    return produce_request("t", batch, acks=acks)


def produce(client: RawClient, byte_count: int) -> int:
    """Milliseconds that the client is told to wait."""
    answer = client.call(produced(byte_count), 9, m.ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return answer.throttle_time_ms


def heartbeat(client: RawClient, version: int = 4) -> m.HeartbeatResponse:
    request = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="nobody")
    return client.call(request, version, m.HeartbeatResponse)


def test_limits_are_there_after_a_restart(tmp_path: Path) -> None:
    with BrokerThread(tmp_path) as broker, RawClient(broker.port) as client:
        assert alter(client, ANONYMOUS, ("producer_byte_rate", 9.0)) == 0
    with BrokerThread(tmp_path) as broker, RawClient(broker.port) as client:
        assert described(client) == {tuple(ANONYMOUS): {"producer_byte_rate": 9.0}}


def test_only_a_producer_over_its_limit_is_told_and_held_back(
    broker: BrokerThread,
) -> None:
    with RawClient(broker.port) as client, RawClient(broker.port) as other:
        assert alter(client, ANONYMOUS, ("producer_byte_rate", LIMIT)) == 0
        assert produce(client, 90_000) == 0
        began = time.monotonic()
        # Over the limit by two windows, so that it may come two seconds late.
        throttle_ms = produce(client, 30_500)
        assert 0 < throttle_ms < 2_500
        # The answer was there at once; what follows on this connection waits.
        client.send(framed(request_body(produced(10), 9)))
        heartbeat(other)
        response_in(client.receive(), m.ProduceResponse, 9)
        assert (time.monotonic() - began) * 1_000 >= throttle_ms


def test_a_producer_that_wants_no_answer_is_held_back_as_well(broker: BrokerThread) -> None:
    with RawClient(broker.port) as client:
        assert alter(client, ANONYMOUS, ("producer_byte_rate", LIMIT)) == 0
        began = time.monotonic()
        client.send(framed(request_body(produced(105_000, acks=0), 9)))
        heartbeat(client)
        assert time.monotonic() - began >= 0.5


def test_requests_that_were_sent_ahead_wait_and_are_answered(broker: BrokerThread) -> None:
    with RawClient(broker.port) as client:
        assert alter(client, ANONYMOUS, ("producer_byte_rate", LIMIT)) == 0
        began = time.monotonic()
        ahead = [framed(request_body(produced(size), 9)) for size in (105_000, 10, 10)]
        client.send(b"".join(ahead))
        throttles = [
            response_in(client.receive(), m.ProduceResponse, 9).throttle_time_ms for _ in ahead
        ]
        assert throttles[0] > 0
        assert (time.monotonic() - began) * 1_000 >= throttles[0]


def fetch(client: RawClient, version: int = 11) -> m.FetchResponse:
    return client.call(fetch_request("t", max_wait_ms=5_000), version, m.FetchResponse)


def test_a_consumer_over_its_limit_gets_nothing_and_may_come_again(broker: BrokerThread) -> None:
    with RawClient(broker.port) as client:
        assert produce(client, 60_000) == 0
        assert alter(client, ANONYMOUS, ("consumer_byte_rate", LIMIT)) == 0
        assert len(fetch(client).responses) == 1
        began = time.monotonic()
        denied = fetch(client)
        assert denied.responses == []
        assert denied.throttle_time_ms > 0
        heartbeat(client)
        assert (time.monotonic() - began) * 1_000 >= denied.throttle_time_ms


def test_a_consumer_is_given_no_more_at_once_than_its_limit_allows(broker: BrokerThread) -> None:
    def batch_count(client: RawClient) -> int:
        answer = fetch(client)
        assert answer.throttle_time_ms == 0
        records = answer.responses[0].partitions[0].records
        assert records is not None
        return len(records) // 40_000

    with RawClient(broker.port) as client:
        for _ in range(3):
            assert produce(client, 40_000) == 0
        # 100,000 bytes before there is anything to wait for.
        assert alter(client, ANONYMOUS, ("consumer_byte_rate", LIMIT)) == 0
    with RawClient(broker.port) as client:
        assert batch_count(client) == 2
        assert alter(client, ANONYMOUS, ("consumer_byte_rate", 100 * LIMIT)) == 0
        assert batch_count(client) == 3
        assert alter(client, ANONYMOUS, ("consumer_byte_rate", None)) == 0
        assert batch_count(client) == 3


def test_work_in_many_turns_is_charged_and_waiting_is_not(broker: BrokerThread) -> None:
    plans = [
        m.CreatableTopic(
            name=f"t{number}",
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[m.CreatableTopicConfig(name="retention.ms", value=str(number))],
        )
        for number in range(2_000)
    ]
    planning = m.CreateTopicsRequest(topics=plans, timeout_ms=30_000, validate_only=True)
    with RawClient(broker.port) as client:
        # 100 ms before anything has to be waited for. The plans take half a second of work.
        assert alter(client, ANONYMOUS, ("request_percentage", 1.0)) == 0
        for _ in range(3):
            waited = client.call(fetch_request("t", max_wait_ms=200), 12, m.FetchResponse)
            assert waited.throttle_time_ms == 0
        assert client.call(planning, 5, m.CreateTopicsResponse).throttle_time_ms > 0


def test_a_broker_stops_while_a_client_is_held_back(tmp_path: Path) -> None:
    with BrokerThread(tmp_path) as broker, RawClient(broker.port) as client:
        assert alter(client, ANONYMOUS, ("request_percentage", 0.000001)) == 0
        heartbeat(client)
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 30
