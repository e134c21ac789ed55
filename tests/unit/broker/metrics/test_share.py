"""What a scrape says about share groups."""

from kohort.broker.metrics.share import share_metrics
from kohort.broker.share.delivery import ShareDelivery
from kohort.testing.virtual_clock import VirtualClock
from tests.support.share.running_share import running_share
from tests.support.virtual_time import virtual


def scraped(delivery: ShareDelivery | None, groups_max: int = 10) -> dict[str, float]:
    """The value of each sample that is not zero."""
    return {
        f"{sample.name}{sorted(sample.labels.values())}": sample.value
        for family in share_metrics(delivery, groups_max)
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
        assert scraped(broker.delivery) == {
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
        assert scraped(broker.delivery)[name] == 3


def test_a_broker_without_share_groups_has_nothing_to_count() -> None:
    assert scraped(None) == {}
