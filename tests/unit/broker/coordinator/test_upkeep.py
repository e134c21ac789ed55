"""What the coordinator does unasked: its sweep, deleted topics, and observers."""

import asyncio
from collections.abc import Awaitable, Sequence

import pytest

from kohort.broker.coordinator.actor import GroupActor
from kohort.broker.coordinator.command import Command
from kohort.broker.coordinator.coordinator import CoordinatorConfig
from kohort.broker.coordinator.host import GroupHost
from kohort.broker.coordinator.loading import read_group
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.broker.runtime.slices import SLICE_MS
from kohort.groups.config import GroupConfig
from kohort.groups.events import OffsetsStored, RebalanceStarted
from kohort.groups.records import DurableRecord, OffsetRecord
from kohort.groups.requests import CommitRequest, CommittedOffset, LeaveEntry, OffsetToCommit
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.protocol.types import ZERO_UUID
from kohort.testing.virtual_clock import VirtualClock
from tests.support.measures.bytecodes import BYTECODES_PER_MS, WorkClock, metered
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.virtual_time import virtual
from tests.support.waiting import counted_turns
from tests.unit.broker.coordinator.harness import TOPIC_ID, Watcher, running


async def turns_during(work: Awaitable[None]) -> int:
    """How often somebody else had the loop meanwhile."""
    async with counted_turns() as turns:
        await work
    return turns.count


SLICE_BYTECODES = (SLICE_MS + 1) * BYTECODES_PER_MS
"""With the last step."""


class TestUpkeep:
    @virtual
    async def test_the_sweep_comes_round(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            members = await h.stable_static("a")
            await h.classic.leave("g", [LeaveEntry(members["a"])])
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
        positions = tuple(OffsetToCommit("t", number, 1) for number in range(2_000))
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
            await h.groups.host.forget_topics(["other"])
            assert log.append_count == 2
            await h.groups.host.forget_topics(["t"])
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
            await h.groups.host.forget_topics(["t"])
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
            await h.groups.host.forget_topics(["t"])
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
