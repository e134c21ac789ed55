"""Routing, lifecycle and bounds of the coordinator."""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence

import pytest

from kohort.broker.coordinator.actor import GroupActor
from kohort.broker.coordinator.command import Command
from kohort.broker.coordinator.coordinator import CoordinatorConfig
from kohort.broker.coordinator.host import GroupHost
from kohort.broker.coordinator.loading import read_group
from kohort.broker.coordinator.log.offsets_log import Stored
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.broker.core.group.config import GroupConfig
from kohort.broker.core.group.events import OffsetsStored, RebalanceStarted
from kohort.broker.core.group.records import DurableRecord, OffsetRecord
from kohort.broker.core.group.requests import (
    CommitRequest,
    CommittedOffset,
    DeleteOffsetsResult,
    JoinResult,
    LeaveEntry,
    LeaveResult,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
    TopicPartition,
)
from kohort.broker.core.group.unused_ids import GROUP_BYTES, ID_BYTES, UnusedIds
from kohort.broker.runtime.later import Later
from kohort.broker.runtime.slices import SLICE_MS
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.types import ZERO_UUID
from kohort.testing.memory_offsets_log import MemoryOffsetsLog
from kohort.testing.virtual_clock import VirtualClock
from tests.support.measures.bytecodes import BYTECODES_PER_MS, WorkClock, metered
from tests.support.waiting import counted_turns
from tests.unit.broker.coordinator.harness import TOPIC_ID, Harness, Watcher, running, virtual


class TestAbsentGroups:
    @virtual
    async def test_there_is_nothing_to_find(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            unknown = ErrorCode.UNKNOWN_MEMBER_ID
            assert h.ask_join(member_id="m") == JoinResult(unknown, "m")
            assert h.ask_sync("m", 1) == SyncResult(unknown)
            assert h.groups.heartbeat("g", "m", None, 1) is unknown
            entries = [LeaveEntry("a"), LeaveEntry("b")]
            assert await h.groups.leave("g", entries) == LeaveResult(entries=(unknown, unknown))
            assert await h.groups.delete_group("g") is ErrorCode.GROUP_ID_NOT_FOUND
            absent = DeleteOffsetsResult(ErrorCode.GROUP_ID_NOT_FOUND)
            assert await h.groups.delete_offsets("g", []) == absent
            assert h.groups.describe("g") is None
            assert h.offset() is None
            assert h.groups.read_error("g") is ErrorCode.NONE
            assert h.groups.host.stats()["groups"] == 0

    @virtual
    async def test_a_commit_of_a_member_is_told_by_version(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            result = h.ask_commit(member_id="m", generation=3)
            assert not isinstance(result, Later)
            assert result.errors == (ErrorCode.GROUP_ID_NOT_FOUND,)

    @virtual
    async def test_a_commit_from_outside_and_a_first_join_make_one(
        self, clock: VirtualClock
    ) -> None:
        async with running(clock) as h:
            await h.do_commit()
            h.ask_join("other")
            assert {group.group_id for group in h.groups.host.groups()} == {"g", "other"}
            assert h.offset() == 42

    @virtual
    async def test_members_need_a_group_id_and_commits_do_not(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            invalid = ErrorCode.INVALID_GROUP_ID
            assert h.ask_join("") == JoinResult(invalid)
            sync = h.groups.sync("", SyncRequest("m", None, 1))
            assert await sync == SyncResult(invalid)
            assert h.groups.heartbeat("", "m", None, 1) is invalid
            assert await h.groups.leave("", [LeaveEntry("m")]) == LeaveResult(invalid)
            result = await h.groups.delete_offsets("", [TopicPartition("t", 0)])
            assert result == DeleteOffsetsResult(invalid)
            await h.do_commit(group_id="")
            assert h.offset("") == 42
            assert await h.groups.delete_group("") is ErrorCode.NONE

    @virtual
    async def test_a_session_timeout_out_of_bounds_makes_no_group(
        self, clock: VirtualClock
    ) -> None:
        config = CoordinatorConfig(GroupConfig(min_session_timeout_ms=10_001))
        async with running(clock, config=config) as h:
            assert h.ask_join() == JoinResult(ErrorCode.INVALID_SESSION_TIMEOUT)
            assert h.groups.host.group("g") is None


class TestTime:
    @virtual
    async def test_joins_wait_for_the_initial_delay(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            start_ms = clock.monotonic_ms()
            result = await h.join(instance="a")
            assert result.generation == 1
            assert clock.monotonic_ms() - start_ms == 3_000

    @virtual
    async def test_a_silent_member_is_removed(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            await h.stable_static("a")
            await asyncio.sleep(9.9)
            assert h.state() == "Stable"
            await asyncio.sleep(0.2)
            assert h.state() == "Empty"

    @virtual
    async def test_heartbeats_keep_it(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            members = await h.stable_static("a")
            for _ in range(20):
                await asyncio.sleep(5)
                assert h.groups.heartbeat("g", members["a"], "a", 1) is ErrorCode.NONE
            assert h.state() == "Stable"

    @virtual
    async def test_deadlines_are_counted_as_kafka_names_them(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            h.ask_join()
            future = h.join(instance="a")
            assert h.purgatory.stats()["Heartbeat"]["delayed"] == 2
            assert h.purgatory.stats()["Rebalance"]["delayed"] == 1
            future.cancel()

    @virtual
    async def test_when_a_group_is_deleted_its_deadlines_are_gone(
        self, clock: VirtualClock
    ) -> None:
        async with running(clock) as h:
            h.ask_join()
            assert await h.groups.delete_group("g") is ErrorCode.NONE
            assert h.purgatory.stats()["Heartbeat"]["delayed"] == 0
            assert h.groups.host.group("g") is None


class TestClients:
    @virtual
    async def test_a_client_that_is_gone_stays_a_member_until_a_timer_removes_it(
        self,
        clock: VirtualClock,
    ) -> None:
        async with running(clock) as h:
            future = h.join(instance="a")
            future.cancel()
            await asyncio.sleep(3.1)
            assert h.state() == "CompletingRebalance"
            await asyncio.sleep(10)
            assert h.state() == "Empty"

    @virtual
    async def test_a_client_that_is_gone_has_committed_all_the_same(
        self, clock: VirtualClock
    ) -> None:
        log = MemoryOffsetsLog()
        async with running(clock, log) as h:
            log.hold()
            h.commit(7).cancel()
            log.release()
            await asyncio.sleep(0.1)
            assert h.offset() == 7


class TestRestart:
    @virtual
    async def test_groups_and_offsets_are_back(self, clock: VirtualClock) -> None:
        log = MemoryOffsetsLog()
        async with running(clock, log) as h:
            members = await h.stable_static("a", "b")
            await h.do_commit(7, member_id=members["a"], generation=1)
            await h.do_commit(9, group_id="simple")
        async with running(clock, log) as h:
            assert h.state() == "Stable"
            assert h.ask_sync(members["b"], 1) == SyncResult(
                ErrorCode.NONE, "consumer", "range", members["b"].encode()
            )
            assert (h.offset(), h.offset("simple")) == (7, 9)
            # Sessions started again.
            await asyncio.sleep(10.1)
            assert h.state() == "Empty"

    @virtual
    async def test_groups_that_cannot_be_read_do_not_seem_to_be_absent(
        self,
        clock: VirtualClock,
    ) -> None:
        class Log(MemoryOffsetsLog):
            def read(self, partition: int) -> Iterator[Stored]:
                if partition == partition_of("g", 50):
                    raise KafkaError(ErrorCode.CORRUPT_MESSAGE)
                return super().read(partition)

        async with running(clock, Log()) as h:
            unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
            for ask in (h.ask_join, h.ask_commit, lambda: h.ask_sync("m", 1)):
                with pytest.raises(KafkaError) as raised:
                    ask()
                assert raised.value.code is unavailable
            assert h.groups.heartbeat("g", "m", None, 1) is unavailable
            assert h.groups.read_error("g") is unavailable
            assert h.groups.read_error("payments") is ErrorCode.NONE
            await h.do_commit(group_id="payments")
            assert h.offset("payments") == 42


class TestStop:
    @virtual
    async def test_waiting_requests_are_sent_away(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            future = h.join(instance="a")
            await h.groups.host.close()
            result = await future
            assert result.error is ErrorCode.NOT_COORDINATOR
            assert h.purgatory.next_deadline_ms is None

    @virtual
    async def test_later_requests_are_sent_away(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            await h.groups.host.close()
            with pytest.raises(KafkaError) as raised:
                h.ask_join()
            assert raised.value.code is ErrorCode.NOT_COORDINATOR
            assert h.groups.heartbeat("g", "m", None, 1) is ErrorCode.NOT_COORDINATOR
            assert h.groups.read_error("g") is ErrorCode.NOT_COORDINATOR

    @virtual
    async def test_appends_under_way_get_their_chance(self, clock: VirtualClock) -> None:
        log = MemoryOffsetsLog()
        async with running(clock, log) as h:
            log.hold()
            future = h.commit(7)
            asyncio.get_running_loop().call_later(2, log.release)
            await h.groups.host.close()
            assert (await future).errors == (ErrorCode.NONE,)

    @virtual
    async def test_but_not_for_ever(self, clock: VirtualClock) -> None:
        log = MemoryOffsetsLog()
        async with running(clock, log) as h:
            log.hold()
            first = h.commit(7)
            await asyncio.sleep(0)
            second = h.commit(8)
            await h.groups.host.close()
            assert (await first).errors[0] is not ErrorCode.NONE
            with pytest.raises(KafkaError):
                await second
            log.release()


async def turns_during(work: Awaitable[None]) -> int:
    """How often somebody else had the loop meanwhile."""
    async with counted_turns() as turns:
        await work
    return turns.count


async def answered(answer: JoinResult | Later[JoinResult]) -> JoinResult:
    return await answer if isinstance(answer, Later) else answer


async def new_id(h: Harness, group_id: str) -> str:
    """A member id that is handed out, of a client that does not join with it yet."""
    answer = await answered(h.ask_join(group_id))
    assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
    return answer.member_id


SLICE_BYTECODES = (SLICE_MS + 1) * BYTECODES_PER_MS
"""With the last step."""


class TestUpkeep:
    @virtual
    async def test_the_sweep_comes_round(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            members = await h.stable_static("a")
            await h.groups.leave("g", [LeaveEntry(members["a"])])
            assert h.state() == "Empty"
            await asyncio.sleep(601)
            assert h.state() is None
            assert h.groups.host.stats()["groups"] == 0

    @virtual
    async def test_a_group_whose_sweep_fails_does_not_keep_the_others_from_theirs(
        self, clock: VirtualClock
    ) -> None:
        async with running(clock) as h:
            for group_id in ("bad", "good"):
                await h.do_commit(group_id=group_id)
            submit = GroupActor.submit

            def fail_for_one(actor: GroupActor, command: Command) -> None:
                if actor.group.group_id == "bad":
                    raise RuntimeError("unforeseen")
                submit(actor, command)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(GroupActor, "submit", fail_for_one)
                await asyncio.sleep(8 * 86_400)
            assert h.groups.host.group_ids() == ["bad"]
            await asyncio.sleep(601)
            assert h.groups.host.group_ids() == []

    @virtual
    async def test_a_sweep_that_fails_is_begun_again(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            await h.do_commit(group_id="g")

            async def fail(_: GroupHost) -> None:
                raise RuntimeError("unforeseen")

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(GroupHost, "sweep", fail)
                await asyncio.sleep(8 * 86_400)
            assert h.groups.host.group_ids() == ["g"]
            await asyncio.sleep(1200)
            assert h.groups.host.group_ids() == []

    @virtual
    async def test_a_sweep_of_many_groups_lets_others_have_the_loop(
        self, clock: VirtualClock
    ) -> None:
        work = WorkClock(clock)
        async with running(work) as h:
            for index in range(1_000):
                await h.do_commit(group_id=f"g{index}")
            with metered(work) as meter:
                turns = await turns_during(h.groups.host.sweep())
        assert turns >= meter.count // SLICE_BYTECODES > 3

    @virtual
    async def test_a_sweep_of_a_few_large_groups_does_so_too(self, clock: VirtualClock) -> None:
        positions = tuple(OffsetToCommit("t", number, 1) for number in range(5_000))
        work = WorkClock(clock)
        async with running(work) as h:
            for index in range(10):
                request = CommitRequest(positions)
                await h.groups.commit(f"g{index}", request, may_answer_group_not_found=True)
            with metered(work):
                assert await turns_during(h.groups.host.sweep()) >= 10

    @virtual
    async def test_a_sweep_lets_others_have_the_loop_when_groups_take_long(
        self, clock: VirtualClock
    ) -> None:
        class SlowLog(MemoryOffsetsLog):
            def append(
                self, partition: int, records: Sequence[DurableRecord], *, wall_ms: int
            ) -> Awaitable[None] | None:
                clock.advance(SLICE_MS)
                return super().append(partition, records, wall_ms=wall_ms)

        # By hand alone, not again because time has passed.
        config = CoordinatorConfig(GroupConfig(), sweep_interval_ms=1 << 40)
        async with running(clock, SlowLog(), config) as h:
            for index in range(20):
                await h.do_commit(group_id=f"g{index}")
            clock.advance(8 * 86_400_000)
            assert await turns_during(h.groups.host.sweep()) >= 20
            assert h.groups.host.stats()["groups"] == 0

    @virtual
    async def test_offsets_go_with_their_topic(self, clock: VirtualClock) -> None:
        log = MemoryOffsetsLog()
        async with running(clock, log) as h:
            await h.do_commit()
            await h.do_commit(group_id="h")
            h.groups.host.forget_topics(["other"])
            assert log.append_count == 2
            h.groups.host.forget_topics(["t"])
            assert (h.offset(), h.offset("h")) == (None, None)
        async with running(clock, log) as h:
            assert h.offset() is None

    @virtual
    async def test_a_commit_on_its_way_goes_with_its_topic(self, clock: VirtualClock) -> None:
        """One is being stored, one waits for it, one for the end of this turn of the loop."""
        log = MemoryOffsetsLog()
        async with running(clock, log) as h:
            log.hold()
            commits = [h.commit(), h.commit(partition=1), h.commit(group_id="h")]
            await asyncio.sleep(0)
            commits += [h.commit(partition=2), h.commit(group_id="gathered")]
            h.groups.host.forget_topics(["t"])
            # The next topic of that name has a first position already.
            commits.append(h.commit(7, group_id="h"))
            log.release()
            assert {(await commit).errors for commit in commits} == {(ErrorCode.NONE,)}
            await asyncio.sleep(1)
            positions = [h.offset(partition=index) for index in range(3)]
            assert positions == [None, None, None]
            assert (h.offset("gathered"), h.offset("h")) == (None, 7)
        async with running(clock, log) as h:
            assert (h.offset(), h.offset("gathered"), h.offset("h")) == (None, None, 7)

    @virtual
    async def test_a_deletion_finds_a_place_where_requests_are_refused(
        self, clock: VirtualClock
    ) -> None:
        log = MemoryOffsetsLog()
        async with running(clock, log, CoordinatorConfig(GroupConfig(), inbox_max=1)) as h:
            log.hold()
            commits = [h.commit()]
            await asyncio.sleep(0)
            commits.append(h.commit(partition=1))
            with pytest.raises(KafkaError):
                await h.do_commit(partition=2)
            h.groups.host.forget_topics(["t"])
            log.release()
            for commit in commits:
                await commit
            await asyncio.sleep(1)
            assert (h.offset(), h.offset(partition=1)) == (None, None)

    @virtual
    async def test_positions_of_a_former_topic_of_the_name_go_at_the_start(
        self, clock: VirtualClock
    ) -> None:
        log = MemoryOffsetsLog()
        former_id = bytes(reversed(TOPIC_ID))
        records = [
            OffsetRecord("g", "t", index, CommittedOffset(5, -1, "", 99, topic_id=topic_id))
            for index, topic_id in enumerate((former_id, TOPIC_ID, ZERO_UUID))
        ]
        log.append(partition_of("g", 50), records, wall_ms=99)
        async with running(clock, log) as h:
            assert [h.offset(partition=index) for index in range(3)] == [None, 5, 5]
        assert read_group(log, "g") == records[1:]

    @virtual
    async def test_a_deletion_that_a_crash_cut_short_is_finished_at_the_start(
        self, clock: VirtualClock
    ) -> None:
        log = MemoryOffsetsLog()
        lost = OffsetRecord("g", "gone", 0, CommittedOffset(1, -1, "", 99))
        kept = OffsetRecord("g", "t", 0, CommittedOffset(2, -1, "", 99))
        log.append(partition_of("g", 50), [lost, kept], wall_ms=99)
        async with running(clock, log) as h:
            assert h.groups.committed("g", "gone", 0) is None
            assert h.offset() == 2

    @virtual
    async def test_observers_see_what_happens_in_every_group(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            await h.stable_static("a")
            starts = [
                group_id
                for group_id, event in h.watcher.events
                if isinstance(event, RebalanceStarted)
            ]
            assert starts == ["g"]

    @virtual
    async def test_an_observer_is_told_of_the_events_that_it_asks_for_while_it_is_there(
        self, clock: VirtualClock
    ) -> None:
        async with running(clock) as h:
            counter = Watcher(observed={OffsetsStored})
            h.groups.host.add_observer(counter)
            await h.stable_static("a")
            await h.do_commit(group_id="b")
            assert counter.events == [("b", OffsetsStored(1))]
            h.groups.host.remove_observer(counter)
            await h.do_commit(group_id="b")
            assert len(counter.events) == 1
            assert h.watcher.events[-1] == ("b", OffsetsStored(1))


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
            assert group.unused_id_count == 1
            log.release()
            assert (await committed).errors == (ErrorCode.NONE,)
            await asyncio.sleep(0.1)
            assert group.unused_id_count == 0
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
            await h.groups.leave("a", [LeaveEntry(given_back)])
            assert len(ids) == 2
            await h.groups.delete_group("b")
            assert len(ids) == 1
            await asyncio.sleep(11)
            assert len(ids) == 0

    @virtual
    async def test_ids_of_a_group_that_is_read_from_the_log_again_count_no_more(
        self, clock: VirtualClock
    ) -> None:
        ids = UnusedIds()
        async with running(clock, unused_ids=ids) as h:
            await new_id(h, "a")

            def fail(*_: object) -> None:
                raise RuntimeError("a fault of ours")

            h.groups.host.submit("a", Command(fail))
            await asyncio.sleep(0.1)
            group = h.groups.host.group("a")
            assert group is not None
            assert group.unused_id_count == len(ids) == 0

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
                h.groups.heartbeat("g", members["a"], "a", 1)
            assert h.groups.host.stats() == {
                "groups": 1,
                "members": 1,
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
