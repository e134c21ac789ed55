"""What share groups have done is counted, and how records were released or archived is known."""

import asyncio

from kohort.broker.share.reports import GroupReport, How
from kohort.groups.share.state_log import SharePartitionKey
from kohort.protocol.errors import ErrorCode
from kohort.testing.virtual_clock import VirtualClock
from tests.support.share.running_share import GROUP, RunningShare, running_share
from tests.support.virtual_time import virtual

ACCEPT, RELEASE, REJECT = 1, 2, 3


def report_of(broker: RunningShare) -> GroupReport:
    report = broker.delivery.partitions.reports.get(GROUP)
    assert report is not None
    return report


def counts_of(broker: RunningShare) -> dict[str, int]:
    share = broker.delivery.partitions.get(GROUP, broker.topic_id, 0)
    assert share is not None
    return {name: count for name, count in share.own_counts.items() if count}


@virtual
async def test_each_way_to_end_a_delivery_is_counted(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(10)
        await broker.acquire("a")
        await broker.acknowledge([(0, 3, ACCEPT), (4, 4, REJECT), (5, 6, RELEASE)], "a")
        await asyncio.sleep(31)
        assert counts_of(broker) == {
            "deliveries": 10,
            "accepts": 4,
            "rejects": 1,
            "releases": 2,
            "lock_timeouts": 3,
        }
        await broker.acquire("b")
        assert counts_of(broker)["redeliveries"] == 5
        await broker.acknowledge([], "b", epoch=-1)
        assert counts_of(broker)["releases"] == 7
        report = report_of(broker)
        assert report.lock_timeouts == {"a": 3}
        assert report.acknowledged == {"a": 7}


@virtual
async def test_a_refused_acknowledgement_is_not_counted(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(2)
        await broker.acquire("a")
        await broker.acquire("b")
        assert await broker.accept(0, 1, "b") is not ErrorCode.NONE
        assert counts_of(broker) == {"deliveries": 2}


@virtual
async def test_the_deliveries_of_an_archived_record_are_remembered(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(1)
        for number in range(5):
            await broker.acquire(f"m{number}")
            if number % 2:
                await broker.acknowledge([(0, 0, RELEASE)], f"m{number}")
            else:
                await asyncio.sleep(31)
        assert counts_of(broker)["archived_at_limit"] == 1
        key = SharePartitionKey(GROUP, broker.topic_id, 0)
        ended = report_of(broker).deliveries_of(key, 0)
        assert [(each.delivery_count, each.member_id, each.how) for each in ended] == [
            (1, "m0", How.LOCK_TIMEOUT),
            (2, "m1", How.RELEASED),
            (3, "m2", How.LOCK_TIMEOUT),
            (4, "m3", How.RELEASED),
            (5, "m4", How.LOCK_TIMEOUT),
        ]
        assert [each.delivery_count for each in report_of(broker).archived] == [5]


@virtual
async def test_records_deleted_before_they_are_finished_are_remembered(
    clock: VirtualClock,
) -> None:
    async with running_share(clock) as broker:
        await broker.acquire()
        broker.produce(4)
        log = broker.topics.partition("t", 0)
        assert log is not None
        broker.topics.changes.delete_records_before(log, 3)
        await broker.acquire()
        (ended,) = report_of(broker).archived
        assert (ended.first_offset, ended.last_offset, ended.how) == (0, 2, How.DELETED)


@virtual
async def test_neighbours_that_ended_alike_are_one_range(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        for _ in range(3):
            broker.produce(1)
        assert len(await broker.acquire("a", batch_size=1)) == 3
        await asyncio.sleep(31)
        (ended,) = report_of(broker).released
        assert (ended.first_offset, ended.last_offset, ended.how) == (0, 2, How.LOCK_TIMEOUT)
