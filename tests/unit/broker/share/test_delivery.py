"""Records are delivered to sessions, each to one member at a time."""

import gc

from kohort.broker.network.service import ConnectionInfo
from kohort.broker.share.fetch import ShareFetch
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.share_fetch import FetchPartition, FetchTopic, ShareFetchResponse
from kohort.testing.virtual_clock import VirtualClock
from tests.support.share.running_share import Acquired, acquired, running_share
from tests.support.virtual_time import virtual


@virtual
async def test_a_partition_that_is_not_initialized_is_answered_in_every_fetch(
    clock: VirtualClock,
) -> None:
    async with running_share(clock) as broker:
        broker.forget(0)
        for _ in range(2):
            response = await broker.fetch()
            (partition,) = response.responses[0].partitions
            assert partition.error_code == ErrorCode.UNKNOWN_SERVER_ERROR


@virtual
async def test_a_session_above_the_limit_is_refused_after_the_wait(clock: VirtualClock) -> None:
    async with running_share(
        clock, "group.share.max.share.sessions=1", "group.share.max.size=1"
    ) as broker:
        await broker.fetch("a")
        begun_ms = clock.monotonic_ms()
        response = await broker.fetch("b", max_wait_ms=400)
        assert response.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert clock.monotonic_ms() - begun_ms == 400


@virtual
async def test_a_group_that_changes_its_reset_policy_before_it_reads_begins_again(
    clock: VirtualClock,
) -> None:
    async with running_share(clock, policy="latest") as broker:
        broker.forget(0)
        broker.produce(2)
        broker.initialize([0])
        assert await broker.acquire() == []
        await broker.topics.changes.alter_group(
            "g", lambda _: {"share.auto.offset.reset": "earliest"}
        )
        assert await broker.acquire() == [Acquired(0, 1, 1)]


@virtual
async def test_a_fetch_passes_many_aborted_records_without_a_wait(clock: VirtualClock) -> None:
    async with running_share(clock, share_isolation_level="read_committed") as broker:
        for _ in range(5):
            broker.produce(400, producer_id=7, producer_epoch=0, is_transactional=True)
        broker.abort(7)
        broker.produce(1)
        begun_ms = clock.monotonic_ms()
        found: list[Acquired] = []
        while not found or found[-1].last < 2001:
            found += await broker.acquire(max_wait_ms=10_000, max_records=500)
        assert clock.monotonic_ms() == begun_ms


@virtual
async def test_a_fetch_that_has_waited_is_freed_without_the_collector(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        gc.disable()
        try:
            assert await broker.acquire(max_wait_ms=100) == []
            assert not [one for one in gc.get_objects() if isinstance(one, ShareFetch)]
        finally:
            gc.enable()


def acquired_by_partition(response: ShareFetchResponse) -> dict[int, int]:
    """The numbers of acquired records."""
    return {
        partition.partition_index: sum(
            acquired.last_offset - acquired.first_offset + 1
            for acquired in partition.acquired_records
        )
        for topic in response.responses
        for partition in topic.partitions
    }


@virtual
async def test_a_fetch_that_loads_partitions_acquires_from_the_first(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        for number in (0, 1):
            broker.produce(5, partition=number)
        first = acquired_by_partition(await broker.fetch(partitions=[0, 1]))
        second = acquired_by_partition(await broker.fetch())
        assert sorted([first, second], key=str) == [{0: 5}, {1: 5}]
        for number in (0, 1):
            broker.produce(5, partition=number)
        assert acquired_by_partition(await broker.fetch()) == {0: 5, 1: 5}


@virtual
async def test_a_fetch_that_loads_partitions_passes_aborted_records_of_the_first(
    clock: VirtualClock,
) -> None:
    async with running_share(clock, share_isolation_level="read_committed") as broker:
        broker.produce(5, producer_id=7, producer_epoch=0, is_transactional=True)
        broker.abort(7)
        broker.produce(5, partition=1)
        begun_ms = clock.monotonic_ms()
        response = await broker.fetch(partitions=[0, 1], max_wait_ms=10_000, max_records=2)
        assert acquired_by_partition(response)[1] == 5
        assert clock.monotonic_ms() == begun_ms


@virtual
async def test_a_session_of_many_partitions_is_found_in_steps(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        await broker.topics.changes.create_topic("many", partition_count=200)
        many = broker.topics.get("many")
        assert many is not None
        request = FetchTopic(
            topic_id=many.topic_id,
            partitions=[
                FetchPartition(partition_index=number, acknowledgement_batches=[])
                for number in range(200)
            ],
        )
        response = await broker.fetch(topics=[request])
        (topic,) = response.responses
        assert {partition.error_code for partition in topic.partitions} == {
            ErrorCode.UNKNOWN_SERVER_ERROR
        }
        assert len(topic.partitions) == 200
        broker.produce(1)
        both = await broker.fetch(partitions=[0])
        assert acquired(both)[:1] == [Acquired(0, 0, 1)]


@virtual
async def test_a_closed_connection_opens_no_session(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        response = await broker.fetch(connection=ConnectionInfo("/127.0.0.1", is_open=False))
        assert response.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert len(broker.delivery.sessions) == 0
