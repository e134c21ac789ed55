"""What is told of consumer groups, and what of those that are too many."""

from collections.abc import Sequence
from functools import partial

from kohort.broker.metrics.families import COORDINATOR, load_times
from kohort.broker.metrics.groups import GroupCollector
from kohort.broker.metrics.partitions import readable
from kohort.broker.runtime.slices import Slice
from kohort.groups.classic.states import ClassicState
from kohort.testing.virtual_clock import VirtualClock
from tests.unit.broker.metrics.sources import (
    Group,
    Groups,
    Log,
    Offsets,
    OtherKind,
    Partition,
    Partitions,
    Topic,
    Topics,
    values,
)

TOPICS = Topics(
    [
        Topic("orders", Partitions([Partition(0, 100), Partition(1, 50)])),
        Topic("bills", Partitions([Partition(0, 10)])),
    ]
)

MANAGER = "kafka_coordinator_group_groupmetadatamanager"


async def collected(
    groups: Sequence[Group],
    *,
    groups_max: int = 100,
    group_partitions_max: int = 100,
    topics: Topics | None = None,
) -> tuple[GroupCollector, dict[str, dict[tuple[str, ...], float]]]:
    collector = GroupCollector(
        Groups(groups),
        partial(readable, topics or TOPICS),
        groups_max=groups_max,
        group_partitions_max=group_partitions_max,
    )
    await collector.refresh(Slice(VirtualClock()))
    return collector, values(collector.collect())


async def test_a_group_is_shown_with_members_state_offsets_and_lag() -> None:
    offsets = Offsets({("orders", 0): 90, ("orders", 1): 50, ("bills", 0): 3})
    _, found = await collected([Group("readers", offsets, member_count=2)])
    assert found["kafka_consumergroup_members"] == {("readers",): 2}
    assert found["kohort_consumergroup_state"] == {("readers", "Stable"): 1}
    assert found["kafka_consumergroup_current_offset"] == {
        ("readers", "orders", "0"): 90,
        ("readers", "orders", "1"): 50,
        ("readers", "bills", "0"): 3,
    }
    assert found["kafka_consumergroup_lag"] == {
        ("readers", "orders", "0"): 10,
        ("readers", "orders", "1"): 0,
        ("readers", "bills", "0"): 7,
    }
    assert found["kafka_consumergroup_current_offset_sum"] == {
        ("readers", "orders"): 140,
        ("readers", "bills"): 3,
    }
    assert found["kafka_consumergroup_lag_sum"] == {
        ("readers", "orders"): 10,
        ("readers", "bills"): 7,
    }


async def test_groups_and_offsets_are_counted_in_all_and_by_state() -> None:
    groups = [
        Group("one", Offsets({("orders", 0): 1})),
        Group("two", Offsets({("orders", 0): 1, ("orders", 1): 1}), ClassicState.EMPTY),
        Group("three", state=ClassicState.EMPTY),
    ]
    _, found = await collected(groups, groups_max=1)
    assert found[f"{MANAGER}_numgroups"] == {(): 3}
    assert found[f"{MANAGER}_numgroupsstable"] == {(): 1}
    assert found[f"{MANAGER}_numgroupsempty"] == {(): 2}
    assert found[f"{MANAGER}_numgroupspreparingrebalance"] == {(): 0}
    assert found[f"{MANAGER}_numoffsets"] == {(): 3}


async def test_records_below_the_log_start_do_not_count_as_lag() -> None:
    deleted = Partition(0, high_watermark=10, log=Log(log_start_offset=7))
    empty = Partition(1, high_watermark=10, log=Log(log_start_offset=10))
    topics = Topics([Topic("orders", Partitions([deleted, empty]))])
    offsets = Offsets({("orders", 0): 3, ("orders", 1): 3})
    _, found = await collected([Group("readers", offsets)], topics=topics)
    assert found["kafka_consumergroup_lag"] == {
        ("readers", "orders", "0"): 3,
        ("readers", "orders", "1"): 0,
    }


async def test_a_negative_offset_has_no_lag() -> None:
    _, found = await collected([Group("readers", Offsets({("orders", 0): -5, ("bills", 0): 9}))])
    assert found["kafka_consumergroup_lag"] == {("readers", "bills", "0"): 1}
    assert found["kafka_consumergroup_lag_sum"] == {("readers", "bills"): 1}


def test_how_long_the_start_took_for_partitions_is_told_as_kafka_tells_it() -> None:
    name = "kafka_server_group_coordinator_metrics_partition_load_time"
    for times_ms, longest, mean in (((), 0, 0), ((30, 10, 20), 30, 20)):
        found = values(load_times(COORDINATOR, times_ms))
        assert (found[f"{name}_max"], found[f"{name}_avg"]) == ({(): longest}, {(): mean})


async def test_groups_beyond_the_limit_of_groups_are_summed_and_counted() -> None:
    groups = [
        Group(name, Offsets({("orders", 0): 40}), member_count=1)
        for name in ("first", "second", "third")
    ]
    collector, found = await collected(groups, groups_max=1)
    assert collector.folded == {"groups": 2}
    assert found["kafka_consumergroup_members"] == {("first",): 1, ("(other)",): 2}
    assert found["kohort_consumergroup_state"] == {("first", "Stable"): 1}
    assert found["kafka_consumergroup_lag"] == {
        ("first", "orders", "0"): 60,
        ("(other)", "(other)", "(other)"): 120,
    }
    assert found["kafka_consumergroup_lag_sum"] == {
        ("first", "orders"): 60,
        ("(other)", "(other)"): 120,
    }
    assert found["kafka_consumergroup_current_offset_sum"]["(other)", "(other)"] == 80


async def test_groups_beyond_the_limit_of_offsets_are_summed_whole() -> None:
    groups = [
        Group("large", Offsets({("orders", 0): 0, ("orders", 1): 0, ("bills", 0): 0})),
        Group("small", Offsets({("bills", 0): 0})),
    ]
    collector, found = await collected(groups, group_partitions_max=2)
    assert collector.folded == {"groups": 1}
    assert found["kafka_consumergroup_lag"] == {
        ("small", "bills", "0"): 10,
        ("(other)", "(other)", "(other)"): 160,
    }


async def test_a_group_that_took_the_name_of_the_sums_is_part_of_them() -> None:
    groups = [Group("(other)", member_count=1), Group("honest", member_count=1)]
    collector, found = await collected(groups)
    assert collector.folded == {"groups": 1}
    assert found["kafka_consumergroup_members"] == {("honest",): 1, ("(other)",): 1}


async def test_requests_that_wait_and_unused_ids_are_counted_over_all_groups() -> None:
    preparing = ClassicState.PREPARING_REBALANCE
    groups = [
        Group("one", state=preparing, member_count=1, counts={"parked_joins": 3, "unused_ids": 1}),
        Group("two", state=preparing, member_count=1, counts={"parked_joins": 2}),
        Group(
            "three",
            state=ClassicState.COMPLETING_REBALANCE,
            member_count=3,
            counts={"parked_syncs": 2},
        ),
    ]
    _, found = await collected(groups, groups_max=1)
    assert found["kohort_group_parked_joins"] == {(): 5}
    assert found["kohort_group_parked_syncs"] == {(): 2}
    assert found["kohort_group_pending_ids"] == {(): 1}
    meters = "kafka_server_group_coordinator_metrics"
    assert found[f"{meters}_group_count"] == {("classic",): 3, ("consumer",): 0, ("share",): 0}


async def test_groups_are_counted_by_kind_and_a_kind_without_groups_too() -> None:
    name = "kafka_server_group_coordinator_metrics_group_count"
    groups = [Group("one"), Group("two", kind=OtherKind.OTHER), Group("three")]
    _, found = await collected(groups, groups_max=1)
    expected = {("classic",): 2, ("consumer",): 0, ("share",): 0, ("other",): 1}
    assert found[name] == expected
    _, found = await collected([])
    assert found[name] == {("classic",): 0, ("consumer",): 0, ("share",): 0}


async def test_a_look_pauses_at_every_group_also_at_those_without_offsets() -> None:
    class CountingSlice(Slice):
        count = 0

        async def pause(self, between: object = None) -> None:
            self.count += 1

    time_slice = CountingSlice(VirtualClock())
    groups = Groups([Group(f"group {number}") for number in range(50)])
    collector = GroupCollector(
        groups, partial(readable, TOPICS), groups_max=20, group_partitions_max=100
    )
    await collector.refresh(time_slice)
    assert time_slice.count == 50
