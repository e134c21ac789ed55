"""Bounds of the coordinator: groups, unused member ids, requests that wait."""

import asyncio

import pytest

from kohort.broker.coordinator.command import Command
from kohort.broker.coordinator.coordinator import CoordinatorConfig
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.classic.unused_ids import GROUP_BYTES, ID_BYTES, UnusedIds
from kohort.groups.config import GroupConfig
from kohort.groups.requests import JoinResult, LeaveEntry
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.virtual_clock import VirtualClock
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.virtual_time import virtual
from tests.unit.broker.coordinator.harness import Harness, running


async def answered(answer: JoinResult | Deferred[JoinResult]) -> JoinResult:
    return await answer if isinstance(answer, Deferred) else answer


async def new_id(h: Harness, group_id: str) -> str:
    """A member id that is handed out, of a client that does not join with it yet."""
    answer = await answered(h.ask_join(group_id))
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    return answer.member_id


class TestBounds:
    @virtual
    async def test_there_are_only_so_many_groups(self, clock: VirtualClock) -> None:
        config = CoordinatorConfig(GroupConfig(), groups_max=2)
        async with running(clock, config=config) as h:
            await h.do_commit(group_id="a")
            await h.do_commit(group_id="b")
            with pytest.raises(KafkaError) as raised:
                await h.do_commit(group_id="c")
            assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            await h.do_commit(7, group_id="b")
            await h.groups.delete_group("a")
            await h.do_commit(group_id="c")
            assert h.offset("c") == 42

    @virtual
    async def test_the_oldest_unused_ids_of_all_groups_make_room(self, clock: VirtualClock) -> None:
        ids = UnusedIds(2 * (ID_BYTES + GROUP_BYTES + 1))
        async with running(clock, unused_ids=ids) as h:
            first, second, third = [await new_id(h, name) for name in ("a", "b", "c")]
            await asyncio.sleep(0.1)
            host = h.groups.host
            assert host.group_ids() == ["b", "c"], "nothing else was of the group"
            assert host.stats()["unused_ids"] == len(ids) == 2
            answer = await answered(h.ask_join("a", first))
            assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID
            joins = [h.join(name, member_id) for name, member_id in (("b", second), ("c", third))]
            assert len(ids) == 0, "they are used"
            assert [(await join).error for join in joins] == [ErrorCode.NONE] * 2

    @virtual
    async def test_a_group_with_offsets_outlives_its_unused_id(self, clock: VirtualClock) -> None:
        async with running(clock, unused_ids=UnusedIds(0)) as h:
            await h.do_commit(group_id="a")
            member_id = await new_id(h, "a")
            await asyncio.sleep(0.1)
            assert h.offset("a") == 42
            answer = await answered(h.ask_join("a", member_id))
            assert answer.error is ErrorCode.UNKNOWN_MEMBER_ID

    @virtual
    async def test_an_id_is_dropped_after_the_append_that_its_group_waits_for(
        self, clock: VirtualClock
    ) -> None:
        log, ids = MemoryOffsetsLog(), UnusedIds(ID_BYTES + GROUP_BYTES + 1)
        async with running(clock, log, unused_ids=ids) as h:
            await new_id(h, "a")
            log.hold()
            committed = h.commit(group_id="a")
            await asyncio.sleep(0.1)
            h.ask_join("b")
            await asyncio.sleep(0.1)
            group = h.groups.host.group("a")
            assert group is not None
            assert group.gauges()["unused_ids"] == 1
            log.release()
            assert (await committed).errors == (ErrorCode.NONE,)
            await asyncio.sleep(0.1)
            assert group.gauges()["unused_ids"] == 0
            assert h.offset("a") == 42
            assert len(ids) == 1

    @virtual
    async def test_ids_that_expire_are_given_back_or_go_with_their_group_count_no_more(
        self, clock: VirtualClock
    ) -> None:
        ids = UnusedIds()
        async with running(clock, unused_ids=ids) as h:
            given_back = await new_id(h, "a")
            await new_id(h, "b")
            await new_id(h, "c")
            assert len(ids) == 3
            await h.classic.leave("a", [LeaveEntry(given_back)])
            assert len(ids) == 2
            await h.groups.delete_group("b")
            assert len(ids) == 1
            await asyncio.sleep(11)
            assert len(ids) == 0

    @virtual
    async def test_members_of_a_group_that_is_dropped_take_no_memory_any_more(
        self, clock: VirtualClock
    ) -> None:
        async with running(clock) as h:
            joined = await h.join("a", instance="i")
            assert joined.error is ErrorCode.NONE
            assert h.member_memory.used_bytes > 0

            def fail(*_: object) -> None:
                raise RuntimeError("a fault of ours")

            h.groups.host.submit("a", Command(fail))
            await asyncio.sleep(0.1)
            group = h.groups.host.group("a")
            assert group is not None
            assert h.member_memory.used_bytes == group.describe().member_count == 0
            joined = await h.join("a", instance="i")
            assert h.member_memory.used_bytes > 0
            await h.classic.leave("a", [LeaveEntry(joined.member_id)])
            await h.groups.delete_group("a")
            assert h.member_memory.used_bytes == 0

    @virtual
    async def test_only_so_many_requests_wait_for_an_append(self, clock: VirtualClock) -> None:
        log = MemoryOffsetsLog()
        config = CoordinatorConfig(GroupConfig(), inbox_max=3)
        async with running(clock, log, config) as h:
            log.hold()
            waiting = [h.commit(0)]
            await asyncio.sleep(0)
            waiting += [h.commit(index, partition=index) for index in range(1, 4)]
            with pytest.raises(KafkaError) as raised:
                await h.do_commit(9)
            assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
            log.release()
            for future in waiting:
                assert (await future).errors == (ErrorCode.NONE,)

    @virtual
    async def test_an_idle_group_has_no_task_and_no_timers(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            members = await h.stable_static("a")
            for _ in range(3):
                h.classic.heartbeat("g", members["a"], "a", 1)
            assert h.groups.host.stats() == {
                "groups": 1,
                "members": 1,
                "parked_joins": 0,
                "parked_syncs": 0,
                "unused_ids": 0,
                "offsets": 0,
                "waiting_requests": 0,
                "tasks": 0,
                "faults": 0,
            }
            await h.do_commit(group_id="simple")
            before = sum(kind["delayed"] for kind in h.purgatory.stats().values())
            await asyncio.sleep(10.1)
            after = sum(kind["delayed"] for kind in h.purgatory.stats().values())
            assert (before, after) == (1, 0)
