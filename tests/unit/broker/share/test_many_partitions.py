"""Requests with many partitions are executed in steps, which may be interrupted."""

import asyncio
from collections.abc import Iterable
from contextlib import closing
from typing import Any

import pytest

from kohort.broker.dispatch.context import RequestContext
from kohort.broker.handlers.share_acknowledge import share_acknowledge
from kohort.broker.handlers.share_group_offsets import describe_share_group_offsets
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.share.acknowledge import Acknowledging
from kohort.broker.share.partition import SharePartition
from kohort.groups.events import SharePartitionsForgotten, SharePartitionsInitialized
from kohort.groups.requests import Now
from kohort.groups.share.state_log import SharePartitionKey
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.framing import RequestHeader
from kohort.protocol.messages import share_acknowledge as acks
from kohort.protocol.messages import share_fetch as fetches
from kohort.protocol.messages import share_group_offsets as offsets
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from kohort.testing.virtual_clock import VirtualClock
from tests.support.groups.running_groups import answered
from tests.support.share.running_share import (
    GROUP,
    TOPIC,
    Acquired,
    RunningShare,
    acquired,
    running_share,
)
from tests.support.virtual_time import virtual

ACCEPT = 1
MANY = range(2, 1_003)
"""Partitions that do not exist."""


def share_of(broker: RunningShare) -> SharePartition:
    """Partition 0."""
    share = broker.delivery.partitions.find_loaded(GROUP, broker.topic_id, 0)
    assert share is not None
    return share


def acceptance(last_offset: int) -> acks.AcknowledgementBatch:
    return acks.AcknowledgementBatch(
        first_offset=0, last_offset=last_offset, acknowledge_types=[ACCEPT]
    )


def accepting(broker: RunningShare, partitions: Iterable[int]) -> Any:  # noqa: ANN401 - steps.
    """The steps of a ShareAcknowledge that accepts offsets 0 to 2."""
    request = acks.ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id="m",
        share_session_epoch=1,
        topics=[
            acks.AcknowledgeTopic(
                topic_id=broker.topic_id,
                partitions=[
                    acks.AcknowledgePartition(
                        partition_index=number, acknowledgement_batches=[acceptance(2)]
                    )
                    for number in partitions
                ],
            )
        ],
    )
    context = RequestContext(RequestHeader(79, 2, 1, "c"), broker.connection, broker.services)
    return share_acknowledge(context, request)


@virtual
async def test_an_interrupted_acknowledgement_leaves_nothing_half_done(
    clock: VirtualClock,
) -> None:
    async with running_share(clock) as broker:
        broker.produce(3)
        await broker.acquire()
        with closing(accepting(broker, [0, *MANY])) as steps:
            for _ in range(2):
                next(steps)
        await asyncio.sleep(0.1)
        window = share_of(broker).window
        assert window is not None
        assert window.is_idle
        assert window.start_offset == 3


@virtual
async def test_the_records_of_a_large_session_are_released_in_slices(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(2)
        connection = ConnectionInfo("/127.0.0.2")
        await broker.acquire("a", partitions=[*MANY, 0], connection=connection)
        window = share_of(broker).window
        assert window is not None
        broker.delivery.connection_lost(connection)
        assert window.next_deadline_ms is not None
        assert await broker.acquire("b") == [Acquired(0, 1, 2)]


@virtual
async def test_a_deleted_share_partition_is_not_acknowledged(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(3)
        await broker.acquire()
        share = share_of(broker)
        broker.forget(0)
        acknowledging = Acknowledging(broker.delivery.partitions, "m")
        acknowledging.acknowledge(share, clock.monotonic_ms(), [acceptance(2)])
        assert acknowledging.errors[share].code is ErrorCode.INVALID_RECORD_STATE


@virtual
async def test_a_response_that_is_full_gets_no_more_partitions(clock: VirtualClock) -> None:
    async with running_share(clock, "fetch.max.bytes=1024") as broker:
        for partition in (0, 1):
            broker.produce(500, partition=partition)
        response = await broker.fetch(partitions=[0, 1], max_bytes=1)
        assert acquired(response) == [Acquired(0, 499, 1)]
        following = await broker.fetch(max_bytes=1)
        assert len(following.responses[0].partitions[0].acquired_records) == 1
        assert acquired(following) == []


@virtual
async def test_a_response_has_no_more_bytes_than_the_broker_allows(clock: VirtualClock) -> None:
    async with running_share(clock, "fetch.max.bytes=1024") as broker:
        for _ in range(100):
            broker.produce()
        response = await broker.fetch(max_bytes=1 << 20)
        (partition,) = response.responses[0].partitions
        assert partition.records is not None
        assert 0 < len(partition.records) <= 1024


@virtual
async def test_a_session_does_not_grow_beyond_the_partitions_that_exist(
    clock: VirtualClock,
) -> None:
    async with running_share(clock) as broker:
        await broker.fetch(partitions=MANY)
        response = await broker.fetch(partitions=range(1_100, 2_000))
        assert response.error_code == ErrorCode.INVALID_REQUEST
        broker.produce(1)
        response = await broker.fetch(epoch=1, partitions=[0])
        assert acquired(response) == [Acquired(0, 0, 1)]


@virtual
async def test_a_session_may_end_while_a_fetch_acquires_in_slices(clock: VirtualClock) -> None:
    count = 600
    async with running_share(clock) as broker:
        topic = await broker.topics.changes.create_topic("many", partition_count=count)
        partitions = broker.delivery.partitions
        event = SharePartitionsInitialized(
            2, {topic.topic_id: (topic.name, tuple(range(count)))}, frozenset()
        )
        partitions.observe(GROUP, event, Now(0, 0))
        batch = encode_batch([Record(b"v", timestamp=clock.wall_ms())])
        for log in topic.partitions:
            log.append(batch, read_header(batch), wall_ms=clock.wall_ms(), is_numbered=False)
        named = [
            fetches.FetchPartition(partition_index=number, acknowledgement_batches=[])
            for number in range(count)
        ]
        requested = [fetches.FetchTopic(topic_id=topic.topic_id, partitions=named)]
        fetching = broker.fetch(topics=requested, max_records=count)
        shares = [partitions.find_loaded(GROUP, topic.topic_id, n) for n in range(count)]
        windows = [share.window for share in shares if share is not None]
        while windows[0] is None or windows[0].is_idle:
            await asyncio.sleep(0)
            windows = [share.window for share in shares if share is not None]
        broker.delivery.connection_lost(broker.connection)
        response = await fetching
        got = [p for p in response.responses[0].partitions if p.acquired_records]
        assert 0 < len(got) < count
        await asyncio.sleep(1)
        assert all(window.is_idle for window in windows if window is not None)


@virtual
async def test_many_partitions_are_initialized_in_slices(clock: VirtualClock) -> None:
    async with running_share(clock, initialized=()) as broker:
        await broker.topics.changes.create_topic("many", partition_count=3_000)
        topic = broker.topics.get("many")
        assert topic is not None
        partitions = broker.delivery.partitions
        event = SharePartitionsInitialized(
            2, {topic.topic_id: ("many", tuple(range(3_000)))}, frozenset()
        )
        partitions.observe(GROUP, event, Now(0, 0))
        assert len(partitions) < 3_000
        under_way = partitions.initializations.under_way(GROUP)
        assert under_way is not None
        gone = SharePartitionsForgotten(((topic.topic_id, 0), (topic.topic_id, 2_999)))
        partitions.observe(GROUP, gone, Now(0, 0))
        await under_way
        assert len(partitions) == 2_998
        assert partitions.initializations.under_way(GROUP) is None
        assert partitions.find_loaded(GROUP, topic.topic_id, 2_999) is None


@virtual
async def test_the_number_of_share_partitions_is_bounded(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("kohort.broker.share.partitions.PARTITIONS_MAX", 2)
    async with running_share(clock) as broker:
        partitions = broker.delivery.partitions
        event = SharePartitionsInitialized(2, {broker.topic_id: (TOPIC, (0, 1))}, frozenset())
        partitions.observe("other", event, Now(0, 0))
        (message,) = [line for line in caplog.messages if "Too many" in line]
        assert "2 of group 'other'" in message
        errors: list[KafkaError | None] = []
        for group_id in ("other", GROUP):
            partitions.alter(SharePartitionKey(group_id, broker.topic_id, 0), 0, 2, errors.append)
        await asyncio.sleep(1)
        assert [error and error.code for error in errors] == [ErrorCode.POLICY_VIOLATION, None]
        assert len(partitions) == 2


@virtual
async def test_topics_without_partitions_are_described_in_steps(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        topics = [
            offsets.DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[])
            for _ in range(1_000)
        ]
        group = offsets.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=topics)
        context = RequestContext(RequestHeader(90, 1, 1, "c"), broker.connection, broker.services)
        request = offsets.DescribeShareGroupOffsetsRequest(groups=[group])
        assert len(list(describe_share_group_offsets(context, request))) >= 10


@virtual
async def test_state_of_a_partition_that_the_topic_does_not_have_is_no_offset(
    clock: VirtualClock,
) -> None:
    async with running_share(clock) as broker:
        partitions = broker.delivery.partitions
        partitions.alter(SharePartitionKey(GROUP, broker.topic_id, 2), 0, 1, lambda _: None)
        topic = offsets.DescribeShareGroupOffsetsRequestTopic(topic_name=TOPIC, partitions=[0, 2])
        group = offsets.DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=[topic])
        request = offsets.DescribeShareGroupOffsetsRequest(groups=[group])
        response = await answered(broker.services, request, 1, broker.connection)
        described = response.groups[0].topics[0].partitions
        assert [partition.start_offset for partition in described] == [0, -1]
        assert [partition.error_code for partition in described] == [ErrorCode.NONE] * 2
