"""Groups whose records take long to encode: few writes, and pauses between them."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence

import pytest

from kohort.broker.coordinator.actor import FAULTS_MAX
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.records import DurableRecord
from kohort.groups.requests import JoinResult
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.virtual_clock import VirtualClock
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.virtual_time import virtual
from tests.unit.broker.coordinator.faults import submit_fault
from tests.unit.broker.coordinator.harness import running

UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "kohort.broker.coordinator.actor")


class SlowToEncode(MemoryOffsetsLog):
    """Takes ten milliseconds for every record, as if groups were large."""

    is_slow = True

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock = clock

    def append(
        self, partition: int, records: Sequence[DurableRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        self.clock.advance(10)
        return super().append(partition, records, wall_ms=wall_ms)


class EncodesInTurns(MemoryOffsetsLog):
    """Takes as long, but lets others have the loop meanwhile."""

    is_slow = False

    def append(
        self, partition: int, records: Sequence[DurableRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        if not self.is_slow:
            return super().append(partition, records, wall_ms=wall_ms)
        return self._append_later(partition, records, wall_ms)

    async def _append_later(
        self, partition: int, records: Sequence[DurableRecord], wall_ms: int
    ) -> None:
        await asyncio.sleep(0.01)
        super().append(partition, records, wall_ms=wall_ms)


NAMES = [f"i{index}" for index in range(300)]


class TestLargeGroups:
    @virtual
    async def test_a_static_restart_of_all_members_writes_few_records(
        self, clock: VirtualClock
    ) -> None:
        await self._restart_all(clock, SlowToEncode(clock))

    @virtual
    async def test_so_does_one_whose_records_are_written_over_several_turns(
        self, clock: VirtualClock
    ) -> None:
        await self._restart_all(clock, EncodesInTurns())

    async def _restart_all(self, clock: VirtualClock, log: SlowToEncode | EncodesInTurns) -> None:
        async with running(clock, log) as h:
            await h.stable_static(*NAMES)
            log.is_slow = True
            written = log.append_count
            results = []
            for name in NAMES:
                results.append(h.ask_join(instance=name))
                await asyncio.sleep(0.001)
            for result in results:
                joined = await result if isinstance(result, Deferred) else result
                assert (joined.error, joined.generation) == (ErrorCode.NONE, 1)
            # A fifth of the time at most goes into records, but for the first ones.
            assert log.append_count - written < 12
            assert h.state() == "Stable"

    @virtual
    async def test_one_static_restart_and_the_leaders_behind_it_wait_for_nothing(
        self, clock: VirtualClock
    ) -> None:
        log = SlowToEncode(clock)
        async with running(clock, log) as h:
            await h.stable_static(*NAMES)
            for name in ("i7", "i0"):
                joined = h.ask_join(instance=name)
                assert isinstance(joined, JoinResult)
                assert (joined.error, joined.generation) == (ErrorCode.NONE, 1)

    @virtual
    async def test_everybody_else_is_served_in_the_pauses(self, clock: VirtualClock) -> None:
        log = SlowToEncode(clock)
        async with running(clock, log) as h:
            members = await h.stable_static(*NAMES)
            await asyncio.sleep(0.1)
            h.ask_join(instance="i3")
            h.ask_join(instance="i4")
            waiting = h.join(instance="i1")
            await h.do_commit(7, member_id=members["i2"], generation=1)
            assert h.offset() == 7
            assert not waiting.is_done
            assert (await waiting).error is ErrorCode.NONE

    @virtual
    async def test_a_group_that_is_unavailable_refuses_in_a_pause_too(
        self, clock: VirtualClock
    ) -> None:
        log = SlowToEncode(clock)
        async with running(clock, log) as h:
            await h.stable_static("a", "b")
            h.ask_join(instance="a")
            h.ask_join(instance="a")
            waiting = h.join(instance="b")
            for _ in range(FAULTS_MAX):
                submit_fault(h)
            with pytest.raises(KafkaError) as raised:
                await waiting
            assert raised.value.code is UNAVAILABLE
            # Settled at once, not when the pause ends.
            with pytest.raises(KafkaError) as raised:
                h.ask_join(instance="b")
            assert raised.value.code is UNAVAILABLE

    @virtual
    async def test_who_waits_for_the_end_of_a_pause_is_answered_when_the_broker_stops(
        self, clock: VirtualClock
    ) -> None:
        log = SlowToEncode(clock)
        async with running(clock, log) as h:
            await h.stable_static("a", "b")
            h.ask_join(instance="a")
            h.ask_join(instance="a")
            waiting = h.join(instance="b")
            await h.groups.host.close()
            with pytest.raises(KafkaError) as raised:
                await waiting
            assert raised.value.code is ErrorCode.NOT_COORDINATOR
            await asyncio.sleep(1)
