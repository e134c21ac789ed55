"""Thousands of members come and go, and nothing of them is left."""

import asyncio
import gc
from collections import Counter
from itertools import pairwise

from kohort.broker.coordinator.actor import GroupActor
from kohort.broker.coordinator.host import ANSWERS_MAX
from kohort.broker.core.timing_wheel import KeyedEntry, KeyedTimers
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import ITERATIONS_BETWEEN, SLICE_MS
from kohort.groups.classic.member import Member
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.events import MemberRemoved, RebalanceStarted
from kohort.groups.group import Group
from kohort.groups.requests import JoinResult, LeaveEntry, SyncResult
from kohort.protocol.errors import ErrorCode
from kohort.testing.virtual_clock import VirtualClock
from tests.support.measures.bytecodes import BYTECODES_PER_MS, WorkClock, metered
from tests.support.virtual_time import virtual
from tests.unit.broker.coordinator.harness import Harness, running

SIZES = {"large": 500} | {f"small-{number}": 5 for number in range(50)}
"""Sizes of the groups."""

COUNTED = (Group, ClassicMembership, GroupActor, KeyedEntry, KeyedTimers, Member, Deferred)


def count_objects() -> Counter[type]:
    gc.collect()
    return Counter(type(one) for one in gc.get_objects() if type(one) in COUNTED)


def join(harness: Harness, group_id: str) -> Deferred[JoinResult]:
    """With the id that it is given first."""
    given = harness.ask_join(group_id)
    assert isinstance(given, JoinResult)
    return harness.join(group_id, given.member_id)


async def fill(harness: Harness) -> dict[str, list[JoinResult]]:
    """All groups, with members that have joined and not synced."""
    joins = {group: [join(harness, group) for _ in range(n)] for group, n in SIZES.items()}
    return {group: await asyncio.gather(*waiting) for group, waiting in joins.items()}


async def leave_together(harness: Harness, group_id: str, members: list[JoinResult]) -> None:
    entries = [LeaveEntry(member.member_id) for member in members]
    left = await harness.classic.leave(group_id, entries)
    assert set(left.entries) == {ErrorCode.NONE}


async def drop_groups(harness: Harness) -> None:
    await harness.groups.host.sweep()
    await asyncio.sleep(0)
    assert harness.groups.host.group_ids() == []
    assert not any(harness.groups.host.stats().values())
    assert not any(sum(kind.values()) for kind in harness.purgatory.stats().values())
    harness.watcher.events.clear()


@virtual
async def test_members_that_fall_silent_leave_nothing_behind(clock: VirtualClock) -> None:
    async with running(clock) as harness:
        before = count_objects()
        joined = await fill(harness)
        assert harness.groups.host.stats()["members"] == sum(map(len, joined.values()))
        # They are thrown out by their sessions.
        await asyncio.sleep(400)
        assert harness.groups.host.stats()["members"] == 0
        await drop_groups(harness)
        del joined
        assert count_objects() == before


@virtual
async def test_groups_that_have_gone_are_freed_without_the_collector(clock: VirtualClock) -> None:
    """It looks at old objects once an hour, and dead groups would lie there until then."""
    async with running(clock) as harness:
        before = count_objects()
        joined = await fill(harness)
        gc.disable()
        try:
            await asyncio.sleep(400)
            await drop_groups(harness)
            del joined
            await asyncio.sleep(1)
            after = Counter(type(one) for one in gc.get_objects() if type(one) in COUNTED)
        finally:
            gc.enable()
        assert after == before


@virtual
async def test_members_that_leave_together_leave_nothing_behind(clock: VirtualClock) -> None:
    async with running(clock) as harness:
        before = count_objects()
        joined = await fill(harness)
        for group in list(joined):
            await leave_together(harness, group, joined.pop(group))
        assert harness.groups.host.stats()["members"] == 0
        await drop_groups(harness)
        assert count_objects() == before


@virtual
async def test_thousands_that_leave_with_one_request_go_over_several_turns(
    clock: VirtualClock,
) -> None:
    """They make one rebalance, with all others served in between and no member let in."""
    work, spent = WorkClock(clock), list[int]()
    async with running(work) as harness:
        joined = await asyncio.gather(*[join(harness, "g") for _ in range(1_000)])
        *going, staying = [member.member_id for member in joined]
        assert isinstance(harness.ask_sync(going[0], 1, {staying: b"all"}), SyncResult)
        harness.watcher.events.clear()
        with metered(work) as meter:
            left = harness.classic.leave("g", [LeaveEntry(one) for one in going]).map(lambda it: it)
            assert isinstance(left, Deferred)
            given = harness.ask_join("g")
            assert isinstance(given, Deferred), "the new one has to wait as well"
            while not left.is_done:
                assert harness.classic.heartbeat("g", staying, None, 1) is ErrorCode.NONE
                before = meter.count
                await asyncio.sleep(0)
                spent.append(meter.count - before)
        *slices, _ = spent  # The last one is the rebalance.
        assert len(slices) > 3
        assert max(slices) < (SLICE_MS + 1) * BYTECODES_PER_MS
        long = [turn for turn, count in enumerate(slices) if count > BYTECODES_PER_MS]
        assert {after - before for before, after in pairwise(long)} == {ITERATIONS_BETWEEN}
        events = [event for _, event in harness.watcher.events]
        starts = [event for event in events if isinstance(event, RebalanceStarted)]
        removals = [event for event in events if isinstance(event, MemberRemoved)]
        assert [event.member.member_id for event in removals] == going
        assert len(starts) == 1
        assert events.index(starts[0]) > events.index(removals[-1])
        assert harness.classic.heartbeat("g", staying, None, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        again = harness.join("g", staying)
        came = harness.ask_join("g", (await given).member_id)
        assert isinstance(came, JoinResult)
        assert came.generation == (await again).generation == 2


@virtual
async def test_a_stop_answers_thousands_over_several_turns(clock: VirtualClock) -> None:
    async with running(clock) as harness:
        waiting = [join(harness, "g") for _ in range(1_000)]
        closing = asyncio.ensure_future(harness.groups.host.close())
        most = 0
        while not closing.done():
            before = sum(answer.is_done for answer in waiting)
            await asyncio.sleep(0)
            most = max(most, sum(answer.is_done for answer in waiting) - before)
        assert 0 < most <= ANSWERS_MAX
        answers = await asyncio.gather(*waiting)
        assert {answer.error for answer in answers} == {ErrorCode.NOT_COORDINATOR}


@virtual
async def test_connections_that_end_while_all_wait_leave_nothing_behind(
    clock: VirtualClock,
) -> None:
    async with running(clock) as harness:
        before = count_objects()
        waiting = [join(harness, group) for group, size in SIZES.items() for _ in range(size)]
        for answer in waiting:
            answer.cancel()
        assert harness.groups.host.stats()["waiting_requests"] == len(waiting)
        await asyncio.sleep(400)
        assert harness.groups.host.stats()["members"] == 0
        await drop_groups(harness)
        del waiting, answer
        assert count_objects() == before
