"""Batches on their way, against a model of what brokers do with sequence numbers, and of losses."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kohort.admin.batches_in_flight import BatchesInFlight, SentBatch
from kohort.admin.cluster import RefusedError
from kohort.client.net.address import Address
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.errors import DisconnectedError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record

REMEMBERED = 5
"""Batches of a producer in a partition; Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN."""

ACCEPTS, REFUSES, LOSES, LOSES_ANSWER = "accepts", "refuses", "loses", "loses the answer"
FATES = (ACCEPTS, REFUSES, LOSES, LOSES_ANSWER)


class Link:
    """A connection to `Broker`, which answers in order until it is lost."""

    address = Address("broker", 9092)

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._answers: deque[ErrorCode | None] = deque()
        self.is_lost = False

    def send(self, request: ProduceRequest, timeout_s: float, *, at_most: int) -> object:
        del timeout_s, at_most
        if self.is_lost:
            raise DisconnectedError("lost")
        self._answers.append(self._broker.answer(request))
        self._broker.under_way_max = max(self._broker.under_way_max, len(self._answers))
        return object()

    def receive(self, expected: object, timeout_s: float) -> ProduceResponse:
        del expected, timeout_s
        error = None if self.is_lost else self._answers.popleft()
        if error is None:
            self.is_lost = True
            raise DisconnectedError("lost")
        part = PartitionProduceResponse(index=0, error_code=error, base_offset=0)
        told = TopicProduceResponse(name="t", partition_responses=[part])
        return ProduceResponse(responses=[told])


class Broker:
    """Appends what is next in its partition, knows the last five, and takes anything first."""

    def __init__(self, fates: Sequence[str]) -> None:
        """`fates`: what happens to the first requests; the rest is accepted."""
        self._fates = iter(fates)
        self.logs: dict[int, list[int]] = {}
        self.under_way_max = 0
        self.leaders: dict[int, BlockingConnection | None] = {}
        self._is_lost = False
        self.refresh()

    def refresh(self) -> None:
        """See `Leaders`: a new connection, if the last one is of no use."""
        if not self.leaders or cast("Any", self.leaders[0]).is_lost:
            self._is_lost = False
            link: Any = Link(self)
            self.leaders = dict.fromkeys(range(3), link)

    def answer(self, request: ProduceRequest) -> ErrorCode | None:
        """Return None if there is none, and nothing that follows on this connection arrives."""
        fate = LOSES if self._is_lost else next(self._fates, ACCEPTS)
        if fate is LOSES:
            self._is_lost = True
            return None
        if fate is REFUSES:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        part = request.topic_data[0].partition_data[0]
        assert part.records is not None
        sequence = read_header(part.records).base_sequence
        log = self.logs.setdefault(part.index, [])
        if sequence in log[-REMEMBERED:]:
            error = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        elif log and sequence != log[-1] + 1:
            error = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        else:
            log.append(sequence)
            error = ErrorCode.NONE
        if fate is LOSES_ANSWER:
            self._is_lost = True
            return None
        return error


def batch(partition: int, sequence: int, timeout_s: float = 60) -> SentBatch:
    """A batch of one record, numbered as Kafka has it: one after another in each partition."""
    records = encode_batch([Record(b"v")], producer_id=1, producer_epoch=0, base_sequence=sequence)
    part = PartitionProduceData(index=partition, records=records)
    data = TopicProduceData(name="t", partition_data=[part])
    request = ProduceRequest(acks=-1, timeout_ms=1, topic_data=[data])
    return SentBatch(partition, request, 1, 1, time.monotonic() + timeout_s)


def numbered(partitions: Sequence[int]) -> Iterator[SentBatch]:
    for index, partition in enumerate(partitions):
        yield batch(partition, list(partitions[:index]).count(partition))


@pytest.fixture(autouse=True, scope="module")
def no_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kohort.admin.batches_in_flight.RETRY_S", 0)
        yield


@settings(max_examples=300)
@given(
    partitions=st.lists(st.integers(0, 2), max_size=25),
    fates=st.lists(st.sampled_from(FATES), max_size=30),
)
@example(partitions=[0] * 8, fates=[REFUSES])
@example(partitions=[0] * 8, fates=[ACCEPTS, ACCEPTS, REFUSES, ACCEPTS, ACCEPTS, ACCEPTS])
@example(partitions=[0] * 8, fates=[ACCEPTS, *[LOSES_ANSWER] * 3])
@example(partitions=[0] * 8, fates=[*[ACCEPTS] * 4, LOSES_ANSWER, REFUSES, LOSES])
def test_every_batch_is_appended_once_and_in_order(partitions: list[int], fates: list[str]) -> None:
    broker = Broker(fates)
    under_way = BatchesInFlight("t", broker, 60)
    for one in numbered(partitions):
        under_way.send(one)
    under_way.settle()
    assert broker.logs == {one: list(range(partitions.count(one))) for one in set(partitions)}
    assert under_way.appended_records == under_way.appended_bytes == len(partitions)


def test_as_many_are_under_way_as_a_broker_remembers() -> None:
    broker = Broker([])
    under_way = BatchesInFlight("t", broker, 60)
    for one in numbered([0] * 20):
        under_way.send(one)
    assert broker.under_way_max == REMEMBERED
    assert under_way.appended_records == 20 - REMEMBERED
    under_way.settle()
    assert under_way.appended_records == 20


def test_what_is_refused_for_good_is_not_sent_again() -> None:
    broker = Broker([])
    under_way = BatchesInFlight("t", broker, 60)
    for sequence in (0, 5):
        under_way.send(batch(0, sequence))
    with pytest.raises(RefusedError, match="t-0 does not take a batch: OUT_OF_ORDER"):
        under_way.settle()
    # And nothing is left that another call would send.
    under_way.settle()
    assert under_way.appended_records == 1


def test_a_batch_is_tried_until_its_time_is_over() -> None:
    broker = Broker([REFUSES, LOSES, REFUSES, *[REFUSES] * 1_000_000])
    under_way = BatchesInFlight("t", broker, 60)
    with pytest.raises(RefusedError, match="NOT_LEADER_OR_FOLLOWER"):
        under_way.send(batch(0, 0, timeout_s=0.05))


def test_a_partition_without_a_leader_is_waited_for() -> None:
    broker = Broker([])
    found = dict(broker.leaders)
    broker.leaders[0] = None

    class Later:
        leaders = broker.leaders

        def refresh(self) -> None:
            self.leaders = found

    under_way = BatchesInFlight("t", Later(), 60)
    under_way.send(batch(0, 0))
    under_way.settle()
    assert broker.logs == {0: [0]}


def test_an_interruption_in_the_midst_of_sending_loses_nothing() -> None:
    broker = Broker([])
    under_way = BatchesInFlight("t", broker, 60)
    under_way.send(batch(0, 0))
    link: Any = broker.leaders[0]

    def interrupted(*_: object, **__: object) -> None:
        link.is_lost = True
        raise KeyboardInterrupt

    link.send = interrupted
    with pytest.raises(KeyboardInterrupt):
        under_way.send(batch(0, 1))
    under_way.settle()
    assert broker.logs == {0: [0, 1]}
