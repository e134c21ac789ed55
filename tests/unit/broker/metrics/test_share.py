"""What a scrape says about share groups."""

import asyncio

from kohort.broker.metrics.share import ShareCollector
from kohort.broker.runtime.slices import Slice
from kohort.broker.share.delivery import ShareDelivery
from kohort.testing.virtual_clock import VirtualClock
from tests.support.share.running_share import running_share
from tests.support.virtual_time import virtual


async def scraped(delivery: ShareDelivery | None, groups_max: int = 10) -> dict[str, float]:
    """The value of each sample that is not zero."""
    collector = ShareCollector(lambda: delivery, groups_max)
    await collector.refresh(Slice(VirtualClock()))
    return {
        f"{sample.name}{sorted(sample.labels.values())}": sample.value
        for family in collector.collect()
        for sample in family.samples
        if sample.value
    }


@virtual
async def test_deliveries_and_acknowledgements_are_counted(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(10)
        await broker.acquire(max_records=6)
        await broker.acknowledge([(0, 3, 1), (4, 5, 2), (6, 6, 3)])
        await broker.acquire("other")
        assert await scraped(broker.delivery) == {
            "kafka_server_sharegroupmetrics_recordacknowledgements_total['accept']": 4,
            "kafka_server_sharegroupmetrics_recordacknowledgements_total['reject']": 1,
            "kafka_server_sharegroupmetrics_recordacknowledgements_total['release']": 2,
            "kafka_server_sharepartitionmetrics_inflightmessagecount[]": 5,
            "kafka_server_sharesessioncache_sharesessionscount[]": 2,
            "kafka_server_sharesessioncache_sharepartitionscount[]": 2,
            "kohort_share_partitions[]": 2,
            "kohort_sharegroup_deliveries_total['g']": 12,
            "kohort_sharegroup_redeliveries_total['g']": 2,
            "kohort_sharegroup_acknowledgements_total['accept', 'g']": 4,
            "kohort_sharegroup_acknowledgements_total['g', 'reject']": 1,
            "kohort_sharegroup_acknowledgements_total['g', 'release']": 2,
            "kohort_sharegroup_lag['g']": 5,
        }


@virtual
async def test_locks_that_end_are_counted(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(3)
        await broker.acquire()
        await broker.acquire("other", max_wait_ms=60_000)
        name = "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total[]"
        assert (await scraped(broker.delivery))[name] == 3


@virtual
async def test_the_oldest_lock_and_the_delivery_count_limit_are_seen(clock: VirtualClock) -> None:
    async with running_share(clock) as broker:
        broker.produce(1)
        for _ in range(5):
            await broker.acquire()
            await asyncio.sleep(20)
            oldest = (await scraped(broker.delivery))["kohort_sharegroup_oldest_lock_seconds['g']"]
            assert oldest == 20
            await broker.acknowledge([(0, 0, 2)])
        found = await scraped(broker.delivery)
        assert found["kohort_sharegroup_archived_at_limit_total['g']"] == 1
        assert "kohort_sharegroup_oldest_lock_seconds['g']" not in found


async def test_a_broker_without_share_groups_has_nothing_to_count() -> None:
    assert await scraped(None) == {}
