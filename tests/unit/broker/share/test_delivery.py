"""Records are delivered to sessions, each to one member at a time."""

import asyncio

from kohort.broker.network.service import ConnectionInfo
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.share_fetch import FetchPartition, FetchTopic
from kohort.protocol.records.batch import iter_headers
from kohort.testing.virtual_clock import VirtualClock
from tests.support.share.running_share import Acquired, acquired, running_share
from tests.support.virtual_time import virtual

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


@virtual
async def test_records_are_acquired_and_accepted(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(3)
        assert await broker.acquire() == [Acquired(0, 2, 1)]
        assert await broker.accept(0, 2) is ErrorCode.NONE
        assert await broker.acquire() == []


@virtual
async def test_a_fetch_waits_for_an_append(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        waiting = broker.fetch(max_wait_ms=10_000)
        await asyncio.sleep(2)
        assert not waiting.done()
        broker.produce(1)
        begun_ms = clock.monotonic_ms()
        assert acquired(await waiting) == [Acquired(0, 0, 1)]
        assert clock.monotonic_ms() == begun_ms


@virtual
async def test_one_of_two_waiting_members_gets_the_record(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        first = broker.fetch("a", max_wait_ms=10_000)
        second = broker.fetch("b", max_wait_ms=10_000)
        await asyncio.sleep(1)
        broker.produce(1)
        assert acquired(await first) == [Acquired(0, 0, 1)]
        await asyncio.sleep(1)
        assert not second.done()
        assert acquired(await second) == []


@virtual
async def test_a_release_wakes_another_member_at_once(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(4)
        assert await broker.acquire("a") == [Acquired(0, 3, 1)]
        waiting = broker.fetch("b", max_wait_ms=10_000)
        await asyncio.sleep(1)
        begun_ms = clock.monotonic_ms()
        await broker.acknowledge([(0, 1, ACCEPT), (2, 3, RELEASE)], "a")
        assert acquired(await waiting) == [Acquired(2, 3, 2)]
        assert clock.monotonic_ms() == begun_ms


@virtual
async def test_a_fetch_gets_what_it_releases(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(4)
        await broker.acquire()
        response = await broker.fetch(acknowledge=[(0, 2, ACCEPT), (3, 3, RELEASE)])
        assert acquired(response) == [Acquired(3, 3, 2)]


@virtual
async def test_locks_end(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(2)
        await broker.acquire("a")
        begun_ms = clock.monotonic_ms()
        assert await broker.acquire("b", max_wait_ms=60_000) == [Acquired(0, 1, 2)]
        assert clock.monotonic_ms() - begun_ms == 30_000
        assert await broker.accept(0, 1, "a") is ErrorCode.INVALID_RECORD_STATE


@virtual
async def test_a_renewed_lock_lasts_longer(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(2)
        await broker.acquire("a")
        waiting = broker.fetch("b", max_wait_ms=60_000)
        await asyncio.sleep(20)
        response = await broker.acknowledge([(0, 1, RENEW)], "a", is_renew_ack=True)
        assert response.acquisition_lock_timeout_ms == 30_000
        begun_ms = clock.monotonic_ms()
        assert acquired(await waiting) == [Acquired(0, 1, 2)]
        assert clock.monotonic_ms() - begun_ms == 30_000


@virtual
async def test_the_end_of_a_connection_releases_its_records(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(2)
        connection = ConnectionInfo("/127.0.0.2")
        await broker.acquire("a", connection=connection)
        waiting = broker.fetch("b", max_wait_ms=10_000)
        await asyncio.sleep(1)
        begun_ms = clock.monotonic_ms()
        broker.delivery.connection_lost(connection)
        assert acquired(await waiting) == [Acquired(0, 1, 2)]
        assert clock.monotonic_ms() == begun_ms
        response = await broker.fetch("a")
        assert response.error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


@virtual
async def test_the_end_of_a_session_releases_its_records(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(2)
        await broker.acquire("a")
        response = await broker.acknowledge([(0, 0, ACCEPT)], "a", epoch=-1)
        assert not response.error_code
        assert await broker.acquire("b") == [Acquired(1, 1, 2)]


@virtual
async def test_the_next_request_of_a_session_ends_a_fetch_that_waits(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        waiting = broker.fetch(max_wait_ms=10_000)
        await asyncio.sleep(1)
        following = broker.fetch(max_wait_ms=10_000)
        assert (await waiting).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        broker.produce(1)
        assert acquired(await following) == [Acquired(0, 0, 1)]


@virtual
async def test_a_fetch_of_a_closed_session_acquires_nothing(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        waiting = broker.fetch("a", max_wait_ms=10_000)
        await asyncio.sleep(1)
        await broker.acknowledge([], "a", epoch=-1)
        assert acquired(await waiting) == []
        broker.produce(1)
        assert await broker.acquire("b") == [Acquired(0, 0, 1)]


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
async def test_an_added_partition_begins_at_its_first_record(clock: VirtualClock) -> None:
    async with running_share(clock, policy="latest") as broker:
        broker.forget(0)
        broker.produce(2)
        broker.initialize([0], grown=True)
        assert await broker.acquire() == [Acquired(0, 1, 1)]


@virtual
async def test_a_group_begins_by_time(clock: VirtualClock) -> None:
    async with running_share(clock, policy="by_duration:PT90S") as broker:
        broker.forget(0)
        broker.produce(2)
        clock.advance(60_000)
        broker.produce(2)
        clock.advance(60_000)
        broker.initialize([0])
        assert await broker.acquire() == [Acquired(2, 3, 1)]


@virtual
async def test_records_of_aborted_transactions_are_left_out(clock: VirtualClock) -> None:
    async with running_share(clock, share_isolation_level="read_committed") as broker:
        broker.produce(2)
        broker.produce(2, producer_id=7, producer_epoch=0, is_transactional=True)
        assert await broker.acquire() == [Acquired(0, 1, 1)]
        broker.abort(7)
        broker.produce(1)
        # The marker is acquired, too; clients know it for one.
        assert await broker.acquire() == [Acquired(4, 5, 1)]


@virtual
async def test_records_deleted_from_the_log_are_not_delivered(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(4)
        broker.produce(2)
        await broker.acquire(max_records=1)
        await broker.acknowledge([(0, 0, ACCEPT), (1, 3, RELEASE)])
        broker.topics.changes.delete_records_before(broker.log, 3)
        assert await broker.acquire() == [Acquired(3, 3, 2), Acquired(4, 5, 1)]


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
async def test_a_fetch_waits_for_its_minimum_of_bytes(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(1)
        waiting = broker.fetch(max_wait_ms=10_000, min_bytes=100)
        await asyncio.sleep(1)
        assert not waiting.done()
        broker.produce(1)
        assert acquired(await waiting) == [Acquired(0, 1, 1)]


@virtual
async def test_records_go_out_as_the_batches_that_were_acquired(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        for _ in range(5):
            broker.produce(2)
        await broker.acquire("a", max_records=4)
        response = await broker.fetch("b", max_records=4)
        assert acquired(response) == [Acquired(4, 7, 1)]
        (partition,) = response.responses[0].partitions
        headers = [header for _, header in iter_headers(partition.records)]
        assert [(header.base_offset, header.record_count) for header in headers] == [(4, 2), (6, 2)]


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
