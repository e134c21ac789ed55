"""Limits of bytes a second: what clients get through at a real Kafka and at this broker."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, TypeVar

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.interop.conftest import start_twins
from tests.interop.same_answers.pair import Pair, Side, Twins
from tests.interop.same_answers.scenes import create_topic, fresh_name
from tests.interop.test_same_quotas import alteration
from tests.support import messages as m
from tests.support.network.requests import fetch_request
from tests.support.network.wire import RawClient, framed, request_body, response_in

pytestmark = pytest.mark.long

T = TypeVar("T")

RATES: Final = (20_000, 50_000, 100_000, 200_000, 400_000)
"""Bytes a second."""
PIECES: Final = 4
"""Batches of a second at the limit."""
ALLOWED_S: Final = 10
"""What a limit allows at once, in seconds of it: all windows but one."""
HELD_BACK_S: Final = 10
"""How long a client is held back in all, about."""
TOLERANCE: Final = 0.05


class Passage(NamedTuple):
    """How a client got through."""

    took_s: float
    told_ms: int
    """The waits that it was told, added up."""


@pytest.fixture
def pair(tmp_path_factory: pytest.TempPathFactory, subtests: pytest.Subtests) -> Iterator[Pair]:
    def report(name: str, text: str) -> None:
        with subtests.test(name):
            pytest.fail(text, pytrace=False)

    twins: Twins
    with start_twins(tmp_path_factory.mktemp("rates")) as twins, Pair(twins, report) as made:
        yield made


class Client:
    """A client with a name, whose limits are its own, on a fresh connection."""

    def __init__(self, side: Side, name: str) -> None:
        self._name = name.encode()
        self._client = RawClient(side.port, timeout_s=60)

    def ask(self, request: object, version: int, response: type[T]) -> T:
        body = request_body(request, version, client_id=self._name)
        self._client.send(framed(body))
        return response_in(self._client.receive(), response, version)

    def close(self) -> None:
        self._client.close()


def batch_of(rate: int) -> bytes:
    return bytes(encode_batch([Record(b"v" * (rate // PIECES), None, (), 1_700_000_000_000)]))


def count_of(rate: int) -> int:
    return (ALLOWED_S + HELD_BACK_S) * PIECES


def produce(client: Client, topic: str, batch: bytes) -> int:
    """Milliseconds that the client is told to wait."""
    data = m.PartitionProduceData(index=0, records=memoryview(batch))
    request = m.ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=30_000,
        topic_data=[m.TopicProduceData(name=topic, partition_data=[data])],
    )
    answer = client.ask(request, 9, m.ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    return answer.throttle_time_ms


def pass_in(side: Side, name: str, topic: str, rate: int) -> Passage:
    client, batch = Client(side, name), batch_of(rate)
    began_s, told_ms = time.monotonic(), 0
    for _ in range(count_of(rate)):
        told_ms += produce(client, topic, batch)
    # Comes when the last wait is over.
    client.ask(m.ApiVersionsRequest(), 0, m.ApiVersionsResponse)
    took_s = time.monotonic() - began_s
    client.close()
    return Passage(took_s, told_ms)


def pass_out(side: Side, name: str, topic: str, rate: int) -> Passage:
    client, size = Client(side, name), len(batch_of(rate))
    began_s, told_ms, offset = time.monotonic(), 0, 0
    while offset < count_of(rate):
        request = fetch_request(topic, offset, max_bytes=size)
        answer = client.ask(request, 11, m.FetchResponse)
        told_ms += answer.throttle_time_ms
        for one in answer.responses:
            assert one.partitions[0].error_code == ErrorCode.NONE
            records = one.partitions[0].records
            offset += len(records or b"") // size
    took_s = time.monotonic() - began_s
    client.close()
    return Passage(took_s, told_ms)


def filled(side: Side, topic: str, rate: int) -> None:
    client = Client(side, "filling")
    for _ in range(count_of(rate)):
        assert produce(client, topic, batch_of(rate)) == 0
    client.close()


Pass = Callable[[Side, str, str, int], Passage]


@pytest.mark.parametrize(
    ("key", "through"), [("producer_byte_rate", pass_in), ("consumer_byte_rate", pass_out)]
)
def test_clients_at_five_rates_get_through_as_fast_and_are_told_so(
    pair: Pair, key: str, through: Pass
) -> None:
    topics = {rate: str(create_topic(pair).name) for rate in RATES}
    names = {rate: fresh_name("client") for rate in RATES}
    if through is pass_out:
        for side in pair.sides:
            for rate, topic in topics.items():
                filled(side, topic, rate)
    for rate, name in names.items():
        pair.ask(alteration(("client-id", name), **{key: float(rate)}), 1)
    pair.ask_until_equal(m.DescribeClientQuotasRequest(components=[], strict=False), 1)
    with ThreadPoolExecutor(2 * len(RATES)) as pool:
        under_way = {
            (side.name, rate): pool.submit(through, side, names[rate], topics[rate], rate)
            for rate in RATES
            for side in pair.sides
        }
        found = {key: one.result() for key, one in under_way.items()}
    for rate in RATES:
        kafka, kohort = (found[side.name, rate] for side in pair.sides)
        print(f"{rate} B/s: Kafka {kafka}, Kohort {kohort}")
        # It is the limit that holds them back, and not the machine.
        assert kafka.told_ms >= HELD_BACK_S * 1_000 * 0.8
        assert kohort.took_s == pytest.approx(kafka.took_s, rel=TOLERANCE)
        assert kohort.told_ms == pytest.approx(kafka.told_ms, rel=TOLERANCE)
