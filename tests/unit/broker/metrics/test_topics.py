"""What is told of topics and partitions, and what of those that are too many."""

from collections.abc import Sequence

from kohort.broker.groups_seen import Readable
from kohort.broker.metrics.partitions import readable
from kohort.broker.metrics.topics import TopicCollector
from kohort.broker.runtime.slices import Slice
from kohort.testing.virtual_clock import VirtualClock
from tests.unit.broker.metrics.sources import (
    Compaction,
    Log,
    Partition,
    Partitions,
    Producers,
    Topic,
    Topics,
    values,
)

LATE_BEFORE = 1_000


def topic(
    name: str, *, partition_count: int = 1, high_watermark: int = 0, visible_bytes: int = 0
) -> Topic:
    indexes = range(partition_count)
    return Topic(
        name, Partitions(Partition(index, high_watermark, visible_bytes) for index in indexes)
    )


async def collected(
    topics: Sequence[Topic], *, partitions_max: int = 100
) -> tuple[TopicCollector, dict[str, dict[tuple[str, ...], float]]]:
    collector = TopicCollector(
        Topics(topics), node_id=7, partitions_max=partitions_max, late_before_ms=lambda: LATE_BEFORE
    )
    await collector.refresh(Slice(VirtualClock()))
    return collector, values(collector.collect())


async def test_a_partition_is_shown_with_its_offsets_sizes_and_leader() -> None:
    log = Log(log_start_offset=3, size_bytes=400, segments=[None] * 5)
    partition = Partition(0, high_watermark=9, visible_bytes=700, log=log)
    _, found = await collected([Topic("orders", Partitions([partition]))])
    assert found == {
        "kafka_topic_partitions": {("orders",): 1},
        "kohort_topic_appended_bytes_total": {("orders",): 700},
        "kafka_topic_partition_current_offset": {("orders", "0"): 9},
        "kafka_topic_partition_oldest_offset": {("orders", "0"): 3},
        "kafka_topic_partition_replicas": {("orders", "0"): 1},
        "kafka_topic_partition_in_sync_replica": {("orders", "0"): 1},
        "kafka_topic_partition_under_replicated_partition": {("orders", "0"): 0},
        "kafka_topic_partition_leader": {("orders", "0"): 7},
        "kafka_topic_partition_leader_is_preferred": {("orders", "0"): 1},
        "kafka_log_log_size": {("orders", "0"): 400},
        "kafka_log_log_numlogsegments": {("orders", "0"): 5},
        "kafka_log_logcleanermanager_uncleanable_partitions_count": {(): 0},
        "kohort_compaction_failures_total": {(): 0},
        "kafka_server_replicamanager_produceridcount": {(): 0},
        "kafka_server_replicamanager_partitionswithlatetransactionscount": {(): 0},
    }


async def test_compaction_that_fails_is_shown() -> None:
    topics = Topics([])
    topics.compaction = Compaction(uncleanable_count=2, failure_count=5)
    collector = TopicCollector(topics, node_id=7, partitions_max=1, late_before_ms=lambda: 0)
    await collector.refresh(Slice(VirtualClock()))
    found = values(collector.collect())
    assert found["kafka_log_logcleanermanager_uncleanable_partitions_count"] == {(): 2}
    assert found["kohort_compaction_failures_total"] == {(): 5}


async def test_a_partition_that_lost_offsets_is_shown_with_their_number() -> None:
    whole, short = Partition(0), Partition(1, log=Log(lost_offsets=12))
    _, found = await collected([Topic("orders", Partitions([whole, short]))])
    assert found["kohort_partition_lost_offsets"] == {("orders", "1"): 12}


async def test_a_partition_that_transactions_hold_back_is_shown_with_how_far() -> None:
    held, free = Partition(0, high_watermark=9, held_offsets=4), Partition(1, high_watermark=9)
    _, found = await collected([Topic("orders", Partitions([held, free]))])
    assert found["kohort_partition_last_stable_offset_lag"] == {("orders", "0"): 4}


async def test_partitions_are_counted_whose_first_open_transaction_is_late() -> None:
    producers = [
        Producers(3, LATE_BEFORE - 1),
        Producers(2, LATE_BEFORE),
        Producers(1, None),
        None,
    ]
    partitions = [
        Partition(index, log=Log(loaded_producers=one)) for index, one in enumerate(producers)
    ]
    _, found = await collected([Topic("orders", Partitions(partitions))])
    assert found["kafka_server_replicamanager_partitionswithlatetransactionscount"] == {(): 1}
    assert found["kafka_server_replicamanager_produceridcount"] == {(): 6}


async def test_a_partition_that_is_offline_has_no_replica_in_sync() -> None:
    _, found = await collected(
        [Topic("orders", Partitions([Partition(0, failure=OSError("disk"))]))]
    )
    assert found["kafka_topic_partition_in_sync_replica"] == {("orders", "0"): 0}
    assert found["kafka_topic_partition_under_replicated_partition"] == {("orders", "0"): 1}


async def test_topics_beyond_the_limit_are_summed_and_counted() -> None:
    topics = [
        topic("first", partition_count=2, high_watermark=1),
        topic("large", partition_count=3, high_watermark=10, visible_bytes=5),
        topic("small", partition_count=1, high_watermark=100),
        topic("late", partition_count=1, high_watermark=1000, visible_bytes=7),
    ]
    collector, found = await collected(topics, partitions_max=3)
    assert collector.folded == {"topics": 2, "partitions": 4}
    assert found["kafka_topic_partition_current_offset"] == {
        ("first", "0"): 1,
        ("first", "1"): 1,
        ("small", "0"): 100,
        ("(other)", "(other)"): 1030,
    }
    assert found["kafka_topic_partitions"] == {("first",): 2, ("small",): 1, ("(other)",): 4}
    assert found["kohort_topic_appended_bytes_total"][("(other)",)] == 22
    assert found["kafka_topic_partition_replicas"]["(other)", "(other)"] == 4
    assert ("(other)", "(other)") not in found["kafka_topic_partition_leader"]


async def test_the_offline_ones_among_those_summed_are_counted() -> None:
    topics = [Topic("orders", Partitions([Partition(0), Partition(1, failure=OSError("disk"))]))]
    _, found = await collected(topics, partitions_max=0)
    assert found["kafka_topic_partition_under_replicated_partition"] == {("(other)", "(other)"): 1}


async def test_what_was_seen_is_not_kept_until_the_next_scrape() -> None:
    collector, found = await collected([topic("orders")])
    assert ("orders",) in found["kafka_topic_partitions"]
    collector.forget()
    assert all(set(series) == {()} for series in values(collector.collect()).values())


async def test_a_partition_that_no_one_has_used_is_opened_to_be_seen() -> None:
    partitions = Partitions([Partition(0, 7), Partition(1, 8)], unopened=[1])
    _, found = await collected([Topic("orders", partitions)])
    assert found["kafka_topic_partition_current_offset"] == {("orders", "0"): 7, ("orders", "1"): 8}
    assert partitions.peek(1) is not None


async def test_a_partition_of_an_internal_topic_is_not_opened_to_be_seen() -> None:
    partitions = Partitions([Partition(0, 7), Partition(1, 8)], unopened=[1])
    _, found = await collected([Topic("__consumer_offsets", partitions, is_internal=True)])
    assert found["kafka_topic_partition_current_offset"] == {
        ("__consumer_offsets", "0"): 7,
        ("__consumer_offsets", "1"): 0,
    }
    assert found["kafka_topic_partition_in_sync_replica"]["__consumer_offsets", "1"] == 1
    assert partitions.peek(1) is None


async def test_a_topic_that_is_deleted_during_a_look_is_not_opened_again() -> None:
    partitions = Partitions([Partition(0), Partition(1)], unopened=[0, 1])
    topics = Topics([Topic("orders", partitions)])

    class DeletingSlice(Slice):
        async def pause(self, between: object = None) -> None:
            topics.by_name.clear()

    collector = TopicCollector(topics, node_id=1, partitions_max=10, late_before_ms=lambda: 0)
    await collector.refresh(DeletingSlice(VirtualClock()))
    assert partitions.peek(0) is not None
    assert partitions.peek(1) is None


def test_the_end_of_a_partition_is_known_whether_it_is_open_or_not() -> None:
    orders = Topic("orders", Partitions([Partition(0, 7), Partition(1, 8)], unopened=[1]))
    topics = Topics([orders])
    assert readable(topics, "orders", 0) == Readable(0, 7)
    assert readable(topics, "orders", 1) == Readable(0, 8)
    assert readable(topics, "orders", 2) is None
    assert readable(topics, "orders", -1) is None
    assert readable(topics, "bills", 0) is None
