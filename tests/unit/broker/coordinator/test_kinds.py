"""A group of another kind than the classic one is served by the shell as it is."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from kohort.broker.coordinator.classic_requests import classic_membership
from kohort.broker.metrics.groups import GroupCollector
from kohort.broker.metrics.rebalance_collector import RebalanceCollector
from kohort.broker.metrics.rebalances import RebalanceMetrics
from kohort.broker.runtime.slices import Slice
from kohort.groups.classic.group import ClassicGroup
from kohort.groups.classic.leave import ENTRIES_PER_STEP
from kohort.groups.classic.states import ClassicState
from kohort.groups.effects import (
    Cancel,
    Effect,
    Note,
    Schedule,
    ScheduleSessions,
    TimerKey,
)
from kohort.groups.events import RebalanceStarted, Trigger, TriggerKind
from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.requests import JoinResult, LeaveEntry, Now, SyncResult
from kohort.protocol.errors import ErrorCode
from kohort.testing.virtual_clock import VirtualClock
from tests.support.virtual_time import virtual
from tests.unit.broker.coordinator.harness import Harness, running
from tests.unit.broker.metrics.sources import OtherKind, Topics, values

UNACKNOWLEDGED = "unacknowledged"
"""Kind of the timer of a member that was told of its new assignment."""

TARGET_TIMER = TimerKey("target assignment")


class OtherGroup:
    """Does what a group of any kind does, as a classic one would, and is none: it has timers and a
    label of its own.
    """

    kind = cast(GroupKind, OtherKind.OTHER)

    def __init__(self, classic: ClassicGroup) -> None:
        self._classic = classic
        self.due: list[TimerKey] = []

    def on_deadlines(self, keys: Iterable[TimerKey], now: Now) -> None:
        del now
        self.due.extend(keys)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        assert hasattr(Group, name) or name in Group.__annotations__, f"{name} is of classic groups"
        return getattr(self._classic, name)


def other(classic: ClassicGroup) -> Group:
    return cast(Group, OtherGroup(classic))


async def group_with(groups: Harness, *effects: Effect) -> OtherGroup:
    """A group whose last step had these effects besides."""
    await groups.do_commit(42)
    group = cast(OtherGroup, groups.groups.host.group("g"))
    for effect in effects:
        group.outbox.emit(effect)
    await groups.do_commit(43)
    assert not group.outbox.has_effects
    return group


async def leave(groups: Harness, count: int) -> tuple[ErrorCode, ...]:
    entries = [LeaveEntry(f"m-{number}") for number in range(count)]
    return (await groups.classic.leave("g", entries)).entries


@virtual
async def test_it_commits_and_is_described(clock: VirtualClock) -> None:
    async with running(clock, as_group=other) as groups:
        await groups.do_commit(42)
        assert groups.offset() == 42
        described = groups.groups.describe("g")
        assert described is not None
        assert described.state == "Empty"
        assert classic_membership(groups.groups.host, "g") is None
        assert await groups.groups.delete_group("g") == ErrorCode.NONE
        assert groups.state() is None


@virtual
async def test_it_is_told_of_timers_of_its_own(clock: VirtualClock) -> None:
    """The timers of members can be set many at a time, and each moved and cancelled."""
    members = [TimerKey(UNACKNOWLEDGED, f"m-{number}") for number in range(3)]
    kept, moved, cancelled = members
    async with running(clock, as_group=other) as groups:
        at_ms = clock.monotonic_ms() + 5_000
        group = await group_with(
            groups,
            Schedule(TARGET_TIMER, at_ms),
            ScheduleSessions(dict.fromkeys(members, at_ms)),
            Schedule(moved, at_ms + 10_000),
            Cancel(cancelled),
        )
        await asyncio.sleep(6)
        assert sorted(group.due) == sorted([TARGET_TIMER, kept])
        await asyncio.sleep(60)
        assert sorted(group.due) == sorted([TARGET_TIMER, kept, moved])


@virtual
async def test_it_is_counted_under_its_own_label(clock: VirtualClock) -> None:
    async with running(clock, as_group=other) as groups:
        metrics = RebalanceMetrics()
        host = groups.groups.host
        host.add_observer(metrics)
        trigger = Trigger(TriggerKind.MEMBER_ADDED)
        started = RebalanceStarted(trigger, ClassicState.EMPTY, 1, (), OtherGroup.kind)
        await group_with(groups, Note(started))
        collector = GroupCollector(host, Topics([]), groups_max=9, group_partitions_max=9)
        await collector.refresh(Slice(clock))
        found = values(collector.collect())
        assert found["kafka_server_group_coordinator_metrics_group_count"] == {
            ("classic",): 0,
            ("other",): 1,
        }
        found = values(RebalanceCollector(metrics).collect())
        assert found["kafka_consumergroup_rebalances_total"] == {("g", "member_added", "other"): 1}


@virtual
async def test_requests_to_classic_groups_are_refused_by_it(clock: VirtualClock) -> None:
    """By an answer, as Kafka does: an error in a step would cost the group its memory."""
    async with running(clock, as_group=other) as groups:
        await groups.do_commit(42)
        refused = JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        assert groups.ask_join() == refused
        assert groups.ask_sync("m-0", 1) == SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)
        for count in (2, ENTRIES_PER_STEP + 1):
            assert await leave(groups, count) == (ErrorCode.UNKNOWN_MEMBER_ID,) * count
        assert groups.groups.host.stats()["faults"] == 0
        await groups.do_commit(43)
        assert groups.offset() == 43
