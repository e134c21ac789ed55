"""The command line's producer, with a model of sequence numbers at brokers, and of losses."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.producing import Producer
from kohort.client.net.errors import DisconnectedError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.record import Record
from tests.support import messages as m

T = TypeVar("T")

REMEMBERED = 5
"""Batches of a producer in a partition; Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN."""
PARTITIONS = 3
ACCEPTS, REFUSES, LOSES, LOSES_ANSWER = "accepts", "refuses", "loses", "loses the answer"
INTERRUPTED = "interrupted"
FATES = (ACCEPTS, REFUSES, LOSES, LOSES_ANSWER)


class Broker:
    """The cluster, of one broker, which appends a batch if its sequence number is the next one."""

    def __init__(self, fates: Sequence[str] = ()) -> None:
        """`fates`: what happens to the first requests; the rest is accepted."""
        self._fates = iter(fates)
        self.logs: dict[int, list[int]] = {}
        self.has_leaders = True
        self._connection = object()

    def metadata(self, topics: list[str], *, creates: bool) -> m.MetadataResponse:
        assert (topics, creates) == (["t"], True)
        partitions = [
            m.MetadataResponsePartition(
                error_code=0, partition_index=index, leader_id=0, replica_nodes=[0], isr_nodes=[0]
            )
            for index in range(PARTITIONS)
        ]
        topic = m.MetadataResponseTopic(error_code=0, name="t", partitions=partitions)
        return m.MetadataResponse(brokers=[], controller_id=0, topics=[topic])

    def broker(self, metadata: m.MetadataResponse, node_id: int) -> object:
        del metadata, node_id
        if not self.has_leaders:
            self.has_leaders = True
            return None
        return self._connection

    def retrying(self, ask: Callable[[], T]) -> T:
        return ask()

    def ask(self, connection: object, request: object, *, at_most: int | None = None) -> object:
        del at_most
        if isinstance(request, m.InitProducerIdRequest):
            return m.InitProducerIdResponse(error_code=0, producer_id=1, producer_epoch=0)
        assert isinstance(request, m.ProduceRequest)
        fate = next(self._fates, ACCEPTS) if connection is self._connection else LOSES
        part = request.topic_data[0].partition_data[0]
        assert part.records is not None
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if fate not in {REFUSES, LOSES}:
            error = self._append(part.index, read_header(part.records).base_sequence)
        if fate in {LOSES, LOSES_ANSWER, INTERRUPTED}:
            self._connection = object()
            if fate == INTERRUPTED:
                raise KeyboardInterrupt
            raise DisconnectedError("lost")
        result = m.PartitionProduceResponse(index=part.index, error_code=error, base_offset=0)
        topic = m.TopicProduceResponse(name="t", partition_responses=[result])
        return m.ProduceResponse(responses=[topic])

    def _append(self, partition: int, sequence: int) -> ErrorCode:
        log = self.logs.setdefault(partition, [])
        if sequence in log[-REMEMBERED:]:
            return ErrorCode.DUPLICATE_SEQUENCE_NUMBER
        if log and sequence != log[-1] + 1:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        log.append(sequence)
        return ErrorCode.NONE


def producer_for(broker: Broker, timeout_s: float = 60) -> Producer:
    return Producer(cast("Cluster", broker), "t", timeout_s=timeout_s)


def send(producer: Producer, partition: int) -> None:
    """Append a batch of one record."""
    producer.add(Record(b"v"), partition)
    producer.flush()


@pytest.fixture(autouse=True, scope="module")
def no_pauses() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kohort.admin.producing.RETRY_S", 0)
        yield


@settings(max_examples=300)
@given(
    partitions=st.lists(st.integers(0, PARTITIONS - 1), max_size=25),
    fates=st.lists(st.sampled_from(FATES), max_size=30),
)
@example(partitions=[0] * 8, fates=[REFUSES])
@example(partitions=[0] * 8, fates=[ACCEPTS, *[LOSES_ANSWER] * 3, REFUSES, LOSES])
def test_every_batch_is_appended_once_and_in_order(partitions: list[int], fates: list[str]) -> None:
    broker = Broker(fates)
    producer = producer_for(broker)
    for partition in partitions:
        send(producer, partition)
    assert broker.logs == {one: list(range(partitions.count(one))) for one in set(partitions)}
    assert producer.sent_records == producer.sent_bytes == len(partitions)


def test_what_is_refused_for_good_is_not_sent_again() -> None:
    broker = Broker()
    producer = producer_for(broker)
    send(producer, 0)
    broker.logs[0].append(7)
    with pytest.raises(RefusedError, match="t-0 does not take a batch: OUT_OF_ORDER"):
        send(producer, 0)
    producer.flush()
    assert producer.sent_records == 1


def test_a_batch_is_tried_until_its_time_is_over() -> None:
    broker = Broker([REFUSES, LOSES, *[REFUSES] * 1_000_000])
    producer = producer_for(broker, timeout_s=0.05)
    with pytest.raises(RefusedError, match="NOT_LEADER_OR_FOLLOWER"):
        send(producer, 0)


def test_a_partition_without_a_leader_is_waited_for() -> None:
    broker = Broker()
    producer = producer_for(broker)
    producer.leaders[0] = None
    broker.has_leaders = False
    send(producer, 0)
    assert broker.logs == {0: [0]}


def test_an_interruption_while_a_batch_is_sent_loses_nothing() -> None:
    broker = Broker([ACCEPTS, INTERRUPTED])
    producer = producer_for(broker)
    send(producer, 0)
    with pytest.raises(KeyboardInterrupt):
        send(producer, 0)
    producer.flush()
    assert broker.logs == {0: [0, 1]}
    assert producer.sent_records == 2
