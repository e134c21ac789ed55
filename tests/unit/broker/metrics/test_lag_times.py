"""Lag in time, of more groups than one scrape has time for."""

from kohort.broker.metrics.groups import BUDGET_MS, LagTimeCollector
from kohort.broker.runtime.slices import Slice
from kohort.testing.virtual_clock import VirtualClock
from tests.unit.broker.metrics.sources import Group, Groups, Offsets, values


async def test_a_slow_disk_delays_values_and_starves_no_group() -> None:
    clock = VirtualClock()
    scrape = 0

    async def oldest_unread(group: object, time_slice: Slice) -> int | None:
        del group, time_slice
        clock.advance(BUDGET_MS // 2 + 1)
        return 1_000 * scrape

    offsets = Offsets({("orders", 0): 5})
    groups = [Group(name, offsets) for name in ("a", "b", "c", "d", "e")]
    collector = LagTimeCollector(Groups(groups), oldest_unread, clock, groups_max=4)
    shown = {}
    for scrape in (1, 2, 3):
        await collector.refresh(Slice(clock))
        shown[scrape] = values(collector.collect())["kohort_consumergroup_lag_seconds"]
    assert shown[1] == {("a",): 1, ("b",): 1}
    assert shown[2] == {("a",): 1, ("b",): 1, ("c",): 2, ("d",): 2}
    assert shown[3] == {("a",): 3, ("b",): 3, ("c",): 2, ("d",): 2}
