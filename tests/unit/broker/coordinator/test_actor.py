"""Turns of one group: order, batching, and what is held back until it is durable."""

import asyncio

import pytest

from kohort.broker.coordinator.actor import FAULTS_MAX
from kohort.broker.coordinator.command import Command
from kohort.broker.coordinator.coordinator import CoordinatorConfig
from kohort.broker.runtime.slices import SLICE_MS
from kohort.groups.config import GroupConfig
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.virtual_clock import VirtualClock
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.virtual_time import virtual
from tests.support.waiting import counted_turns, turns
from tests.unit.broker.coordinator.faults import ShortLog
from tests.unit.broker.coordinator.harness import running

UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


UNWRITABLE = 1 << 70
"""No offset that a request can name."""


class TestAppends:
    @virtual
    async def test_commits_that_wait_share_the_next_append_in_their_order(
        self,
        clock: VirtualClock,
    ) -> None:
        log = MemoryOffsetsLog()
        async with running(clock, log) as h:
            log.hold()
            first = h.commit(1)
            await turns()
            others = [h.commit(2), h.commit(3), h.commit(4)]
            await turns()
            assert log.append_count == 1
            log.release()
            await asyncio.gather(first, *others)
            assert log.append_count == 2
            assert h.offset() == 4

    @virtual
    async def test_what_comes_behind_a_commit_is_stepped_behind_it(
        self,
        clock: VirtualClock,
    ) -> None:
        async with running(clock) as h:
            commit = h.commit(1)
            # In the other order the commit would find members, and be refused.
            join = h.join(instance="i")
            assert (await commit).errors == (ErrorCode.NONE,)
            assert (await join).generation == 1

    @virtual
    async def test_a_record_that_cannot_be_written_fails_its_own_request_alone(
        self, clock: VirtualClock
    ) -> None:
        async with running(clock) as h:
            before = h.groups.host.group("g")
            for round_ in range(2 * FAULTS_MAX):
                first, bad, last = (
                    h.commit(round_),
                    h.commit(UNWRITABLE, partition=1),
                    h.commit(round_, partition=2),
                )
                assert (await first).errors == (ErrorCode.NONE,)
                assert (await bad).errors == (ErrorCode.UNKNOWN_SERVER_ERROR,)
                assert (await last).errors == (ErrorCode.NONE,)
                assert (h.offset(), h.offset(partition=2)) == (round_, round_)
            assert h.offset(partition=1) is None
            assert before is None or h.groups.host.group("g") is before
            assert not h.groups.host.stats()["faults"]

    @virtual
    async def test_an_append_that_is_too_large_is_made_in_pieces(self, clock: VirtualClock) -> None:
        log = ShortLog(bytes_max=600)
        async with running(clock, log) as h:
            commits = [h.commit(n, partition=n) for n in range(20)]
            for commit in commits:
                assert (await commit).errors == (ErrorCode.NONE,)
            assert [h.offset(partition=n) for n in range(20)] == list(range(20))
            assert log.append_count == 20

    @virtual
    async def test_a_restored_group_is_the_same_after_records_that_could_not_be_written(
        self, clock: VirtualClock
    ) -> None:
        log = MemoryOffsetsLog()
        async with running(clock, log) as h:
            members = await h.stable_static("a", "b")
            kwargs = {"member_id": members["a"], "generation": 1}
            log.hold()
            good = h.commit(1, **kwargs)
            await turns()
            bad, other = h.commit(UNWRITABLE, partition=1, **kwargs), h.commit(3, **kwargs)
            waiting = h.join(instance="c")
            log.release()
            assert (await good).errors == (await other).errors == (ErrorCode.NONE,)
            assert (await bad).errors == (ErrorCode.UNKNOWN_SERVER_ERROR,)
            await turns()
            assert not waiting.is_done
        async with running(clock, log) as h:
            assert (h.state(), h.offset(), h.offset(partition=1)) == ("Stable", 3, None)

    @virtual
    async def test_deadlines_that_come_meanwhile_are_looked_at_afterwards(
        self,
        clock: VirtualClock,
    ) -> None:
        log = MemoryOffsetsLog()
        async with running(clock, log) as h:
            members = await h.stable_static("a", "b")
            log.hold()
            future = h.commit(1, member_id=members["a"], generation=1)
            await asyncio.sleep(20)
            assert h.state() == "Stable"
            log.release()
            await turns()
            assert h.state() == "Empty"
            assert (await future).errors == (UNAVAILABLE,)
            assert h.offset() == 1

    @virtual
    async def test_clients_do_not_wait_for_a_slow_disk_longer_than_configured(
        self,
        clock: VirtualClock,
    ) -> None:
        log = MemoryOffsetsLog()
        config = CoordinatorConfig(GroupConfig(), commit_timeout_ms=2_000)
        async with running(clock, log, config) as h:
            log.hold()
            start_ms = clock.monotonic_ms()
            first = h.commit(1)
            await turns()
            second = h.commit(2, partition=1)
            assert (await first).errors == (UNAVAILABLE,)
            assert clock.monotonic_ms() - start_ms == 2_000
            with pytest.raises(KafkaError) as raised:
                await second
            assert raised.value.code is UNAVAILABLE
            log.release()
            await turns()
            # The first was on its way already and counts, the second was never begun.
            assert (h.offset(), h.offset(partition=1)) == (1, None)
            await h.do_commit(3)
            assert h.offset() == 3


class TestExclusive:
    @virtual
    async def test_a_deletion_waits_for_its_turn(self, clock: VirtualClock) -> None:
        log = MemoryOffsetsLog()
        async with running(clock, log) as h:
            log.hold()
            before = h.commit(1)
            deletion = asyncio.ensure_future(h.groups.delete_group("g"))
            after = h.commit(2)
            await turns()
            log.release()
            assert (await before).errors == (ErrorCode.NONE,)
            assert await deletion is ErrorCode.NONE
            # It finds no group any more, and makes one.
            assert (await after).errors == (ErrorCode.NONE,)
            assert h.offset() == 2
            assert h.groups.host.stats()["groups"] == 1

    @virtual
    async def test_the_long_steps_of_several_groups_have_one_slice_in_an_iteration(
        self, clock: VirtualClock
    ) -> None:
        group_ids = [str(number) for number in range(20)]
        slices: list[tuple[int, str]] = []
        async with running(clock) as h, counted_turns() as others:

            def steps(group_id: str) -> Steps[None]:
                while len(slices) < 200:
                    slices.append((others.count, group_id))
                    clock.advance(SLICE_MS)
                    yield

            for group_id in group_ids:
                step = Command(
                    lambda group, _: steps(group.group_id), creates_group=True, is_exclusive=True
                )
                h.groups.host.submit(group_id, step)
            await turns(1_000)
        assert len(slices) == 200
        later = [count for count, _ in slices[len(group_ids) :]]
        assert len(set(later)) == len(later)
        # None has to wait for another that never ends.
        assert [group_id for _, group_id in slices[-len(group_ids) :]] == group_ids
