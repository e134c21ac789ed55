"""Positions in transactions, in any order, against a real Kafka's group coordinator: what it tells
is what a start makes of the log that it has written, and what this broker tells after the same
requests, unstable positions among it.
"""

import random
import time
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from kohort.broker.coordinator.loading import load_groups
from kohort.broker.coordinator.log.offsets_log import Stored, decode_stored
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.groups.offsets.table import OffsetTable
from kohort.groups.records import OffsetRecord, PendingOffset
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import split_batches
from kohort.testing.virtual_clock import VirtualClock
from tests.interop.same_answers.pair import TWIN_SETTINGS, Twins
from tests.interop.same_answers.scenes import Topic
from tests.support import messages as m
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.network.requests import fetch_request
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

T = TypeVar("T")
OFFSETS = "__consumer_offsets"
LOG_PARTITIONS = int(TWIN_SETTINGS["offsets.topic.num.partitions"])
PARTITIONS = 3
PRODUCERS = 3
STEPS = 25
LOOKS_AFTER_STEPS = 0.3
TIMEOUT_S = 60
RETRIED = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


class Producer:
    """Commits positions in transactions, as producers of before Kafka 4 do."""

    def __init__(self, client: RawClient, transactional_id: str, group: str, topic: str) -> None:
        self._client = client
        self._id = transactional_id
        self._group = group
        self._topic = topic
        self._is_open = False
        self._pid, self._epoch = self._begin_life()

    def _begin_life(self) -> tuple[int, int]:
        request = m.InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=600_000)
        find = m.FindCoordinatorRequest(key=self._id, key_type=1)

        def ask() -> m.InitProducerIdResponse:
            self._client.call(find, 3, m.FindCoordinatorResponse)
            return self._client.call(request, 3, m.InitProducerIdResponse)

        answer = accepted(ask, lambda answer: answer.error_code)
        return answer.producer_id, answer.producer_epoch

    def commit(self, partition: int, offset: int) -> None:
        add = m.AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self._pid,
            producer_epoch=self._epoch,
            group_id=self._group,
        )
        accepted(
            lambda: self._client.call(add, 3, m.AddOffsetsToTxnResponse),
            lambda answer: answer.error_code,
        )
        position = m.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        request = m.TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=self._group,
            producer_id=self._pid,
            producer_epoch=self._epoch,
            topics=[m.TxnOffsetCommitRequestTopic(name=self._topic, partitions=[position])],
        )
        accepted(
            lambda: self._client.call(request, 3, m.TxnOffsetCommitResponse),
            lambda answer: answer.topics[0].partitions[0].error_code,
        )
        self._is_open = True

    def end(self, *, commit: bool) -> None:
        """Return when the markers are written."""
        if not self._is_open:
            return
        self._is_open = False
        request = m.EndTxnRequest(
            transactional_id=self._id,
            producer_id=self._pid,
            producer_epoch=self._epoch,
            committed=commit,
        )
        assert self._client.call(request, 3, m.EndTxnResponse).error_code == 0
        look = m.DescribeTransactionsRequest(transactional_ids=[self._id])

        def is_complete() -> bool:
            (state,) = self._client.call(look, 0, m.DescribeTransactionsResponse).transaction_states
            return state.transaction_state.startswith("Complete")

        wait_until(is_complete, "the markers are written")


def accepted(ask: Callable[[], T], error_of: Callable[[T], int]) -> T:
    """The answer to what is asked again until there is one that does not depend on the moment."""
    give_up_s = time.monotonic() + TIMEOUT_S
    while (error := error_of(answer := ask())) in RETRIED:
        assert time.monotonic() < give_up_s, error
        time.sleep(0.01)
    assert error == ErrorCode.NONE
    return answer


def commit(client: RawClient, group: str, topic: str, partition: int, offset: int) -> None:
    """Outside of transactions."""
    position = m.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=""
    )
    request = m.OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[m.OffsetCommitRequestTopic(name=topic, partitions=[position])],
    )
    find = m.FindCoordinatorRequest(key=group, key_type=0)

    def ask() -> m.OffsetCommitResponse:
        client.call(find, 3, m.FindCoordinatorResponse)
        return client.call(request, 8, m.OffsetCommitResponse)

    accepted(ask, lambda answer: answer.topics[0].partitions[0].error_code)


def delete(client: RawClient, group: str, topic: str, partition: int) -> None:
    place = m.OffsetDeleteRequestPartition(partition_index=partition)
    topics = [m.OffsetDeleteRequestTopic(name=topic, partitions=[place])]
    request = m.OffsetDeleteRequest(group_id=group, topics=topics)
    assert client.call(request, 0, m.OffsetDeleteResponse).error_code == 0


def told(client: RawClient, group: str, topic: str, *, stable: bool) -> dict[int, int | None]:
    """Positions by partition; None for an unstable one."""
    wanted = m.OffsetFetchRequestTopic(name=topic, partition_indexes=list(range(PARTITIONS)))
    request = m.OffsetFetchRequest(group_id=group, topics=[wanted], require_stable=stable)
    (answer,) = client.call(request, 7, m.OffsetFetchResponse).topics
    unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert {one.error_code for one in answer.partitions} <= {0, unstable}
    return {
        one.partition_index: None if one.error_code else one.committed_offset
        for one in answer.partitions
    }


class KafkasLog(MemoryOffsetsLog):
    """One partition of a Kafka's, as its batches lie there."""

    def __init__(self, client: RawClient, partition: int) -> None:
        super().__init__(LOG_PARTITIONS)
        self._partition = partition
        self._entries = list(self._read(client))

    def read(self, partition: int) -> Iterator[Stored]:
        return iter(self._entries if partition == self._partition else ())

    def _read(self, client: RawClient) -> Iterator[Stored]:
        offset = 0
        while True:
            request = fetch_request(OFFSETS, offset, partition=self._partition)
            (topic,) = client.call(request, 11, m.FetchResponse).responses
            (answer,) = topic.partitions
            assert answer.error_code == 0
            if not answer.records:
                return
            for header, batch in split_batches(answer.records, partial_tail=True):
                offset = header.next_offset
                yield from decode_stored(header, batch)


async def loaded(client: RawClient, group: str) -> OffsetTable:
    log = KafkasLog(client, partition_of(group, LOG_PARTITIONS))
    found = await load_groups(log, VirtualClock())
    table = OffsetTable()
    for record in found.records_by_group.get(group, ()):
        assert isinstance(record, OffsetRecord | PendingOffset)
        table.apply(record)
    return table


Told = tuple[dict[int, int | None], dict[int, int | None]]
"""All positions, and stable ones."""


@pytest.mark.parametrize("seed", range(4))
async def test_a_start_tells_what_the_kafka_tells_that_wrote_the_log(
    twins: Twins, group_topic: Topic, seed: int, *, long_form: bool
) -> None:
    topic = group_topic.name
    with RawClient(twins.kafka.port) as client:
        for number in range(20 if long_form else 1):
            draw = random.Random(1_000 * number + seed)
            for group, told_by_kafka in history(draw, client, topic):
                assert await told_by_a_start(client, group, topic) == told_by_kafka


@pytest.mark.parametrize("seed", range(4))
def test_both_brokers_tell_the_same_after_the_same_history(
    twins: Twins, group_topic: Topic, seed: int, *, long_form: bool
) -> None:
    told_by: list[list[Told]] = []
    for server in (twins.kafka, twins.kohort):
        told_by.append([])
        with RawClient(server.port) as client:
            for number in range(20 if long_form else 1):
                draw = random.Random(1_000 * number + seed)
                told_by[-1] += [seen for _, seen in history(draw, client, group_topic.name)]
    kafkas, ours = told_by
    assert ours == kafkas


def history(draw: random.Random, client: RawClient, topic: str) -> Iterator[tuple[str, Told]]:
    """Takes a new group through some steps; now and then its name, and what the broker tells."""
    group = f"pending-{uuid.uuid4().hex[:8]}"
    commit(client, group, topic, 0, 1_000)
    producers = [Producer(client, f"{group}-{number}", group, topic) for number in range(PRODUCERS)]
    for step in range(STEPS):
        take_step(draw, client, producers, group, topic, step)
        if draw.random() < LOOKS_AFTER_STEPS:
            yield group, told_by_broker(client, group, topic)
    for producer in producers:
        producer.end(commit=draw.random() < 0.5)
    yield group, told_by_broker(client, group, topic)


def take_step(
    draw: random.Random,
    client: RawClient,
    producers: list[Producer],
    group: str,
    topic: str,
    step: int,
) -> None:
    producer, partition = draw.choice(producers), draw.randrange(PARTITIONS)
    match draw.choice(["pending", "pending", "pending", "plain", "commit", "abort", "delete"]):
        case "pending":
            producer.commit(partition, step)
        case "plain":
            commit(client, group, topic, partition, step)
        case "delete" if step % 3 == 0:
            delete(client, group, topic, partition)
        case "commit" | "abort" as how:
            producer.end(commit=how == "commit")


def told_by_broker(client: RawClient, group: str, topic: str) -> Told:
    return told(client, group, topic, stable=False), told(client, group, topic, stable=True)


async def told_by_a_start(client: RawClient, group: str, topic: str) -> Told:
    table = await loaded(client, group)
    found = {partition: table.get(topic, partition) for partition in range(PARTITIONS)}
    ours = {partition: -1 if one is None else one.offset for partition, one in found.items()}
    unstable = {partition for partition in ours if table.is_unstable(topic, partition)}
    return dict(ours), {
        partition: None if partition in unstable else offset for partition, offset in ours.items()
    }
