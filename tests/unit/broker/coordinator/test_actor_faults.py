"""Faults in a group's turn: who is told what, and how the group is made again."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence

import pytest

from kohort.broker.coordinator.actor import FAULTS_MAX
from kohort.broker.coordinator.command import Command
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import SLICE_MS
from kohort.groups.records import DurableRecord
from kohort.groups.steps import Steps
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.virtual_clock import VirtualClock
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.virtual_time import virtual
from tests.support.waiting import turns
from tests.unit.broker.coordinator.faults import submit_fault
from tests.unit.broker.coordinator.harness import running

UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


def raising_later(clock: VirtualClock) -> Steps[None]:
    """Fails in an iteration of the loop after the one in which it begins."""
    clock.advance(SLICE_MS)
    yield
    raise RuntimeError("a mistake of ours")


def lasting(clock: VirtualClock) -> Steps[None]:
    """Never ends."""
    while True:
        clock.advance(SLICE_MS)
        yield


class FaultyLog(MemoryOffsetsLog):
    """Its appends raise what no append may raise."""

    def append(
        self, partition: int, records: Sequence[DurableRecord], *, wall_ms: int
    ) -> Awaitable[None] | None:
        raise RuntimeError("a mistake of ours")


class TestFaults:
    @virtual
    async def test_a_step_that_raises_is_answered_and_the_group_made_again_from_the_log(
        self,
        clock: VirtualClock,
    ) -> None:
        async with running(clock) as h:
            members = await h.stable_static("a", "b")
            await h.do_commit(7, member_id=members["a"], generation=1)
            waiting = h.join(instance="c")
            before = h.groups.host.group("g")
            with pytest.raises(KafkaError) as raised:
                submit_fault(h).map(str)
            assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
            # Who had nothing to do with it is told to come again.
            with pytest.raises(KafkaError) as raised:
                await waiting
            assert raised.value.code is UNAVAILABLE
            assert h.groups.host.group("g") is not before
            assert (h.state(), h.offset()) == ("Stable", 7)
            assert h.classic.heartbeat("g", members["b"], "b", 1) is ErrorCode.NONE

    @virtual
    async def test_sessions_go_on_ending_in_the_new_group(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            await h.stable_static("a")
            submit_fault(h)
            await asyncio.sleep(10.1)
            assert h.state() == "Empty"

    @virtual
    async def test_what_came_in_the_same_turn_is_told_to_come_again(
        self, clock: VirtualClock
    ) -> None:
        log = MemoryOffsetsLog()
        async with running(clock, log) as h:
            log.hold()
            first = h.commit(1)
            await turns()
            second = h.commit(2, partition=1)
            fault = submit_fault(h)
            third = h.commit(3, partition=2)
            log.release()
            assert (await first).errors == (ErrorCode.NONE,)
            for future in (second, third):
                with pytest.raises(KafkaError) as raised:
                    await future
                assert raised.value.code is UNAVAILABLE
            assert fault.is_done
            assert h.offset() == 1
            assert (h.offset(partition=1), h.offset(partition=2)) == (None, None)

    @virtual
    async def test_a_later_step_of_a_command_that_raises_is_answered_as_the_first(
        self, clock: VirtualClock
    ) -> None:
        async with running(clock) as h:
            await h.do_commit()
            ticket: Deferred[object] = Deferred()
            command = Command(lambda *_: raising_later(clock), ticket, is_exclusive=True)
            h.groups.host.submit("g", command)
            behind = h.commit(2)
            with pytest.raises(KafkaError) as raised:
                await ticket
            assert raised.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
            with pytest.raises(KafkaError) as raised:
                await behind
            assert raised.value.code is UNAVAILABLE

    @virtual
    async def test_a_stop_between_the_steps_of_a_command_is_no_fault(
        self, clock: VirtualClock
    ) -> None:
        async with running(clock) as h:
            # So many answers that the stop gives them in slices, with the command's in between.
            waiting = [h.join(instance=str(number)) for number in range(1_000)]
            lasts: Deferred[object] = Deferred()
            h.groups.host.submit("g", Command(lambda *_: lasting(clock), lasts, is_exclusive=True))
        answers = await asyncio.gather(*waiting)
        assert {answer.error for answer in answers} == {ErrorCode.NOT_COORDINATOR}
        with pytest.raises(KafkaError) as raised:
            await lasts
        assert raised.value.code is ErrorCode.NOT_COORDINATOR
        assert h.groups.host.stats()["faults"] == 0

    @virtual
    async def test_no_request_is_blamed_when_writing_raises(self, clock: VirtualClock) -> None:
        log = FaultyLog()
        async with running(clock, log) as h:
            commits = [h.commit(1), h.commit(2, partition=1)]
            for commit in commits:
                with pytest.raises(KafkaError) as raised:
                    await commit
                assert raised.value.code is UNAVAILABLE
            assert h.groups.host.stats()["faults"] == 1

    @virtual
    async def test_after_too_many_the_group_stays_unavailable(self, clock: VirtualClock) -> None:
        async with running(clock) as h:
            await h.do_commit()
            for _ in range(FAULTS_MAX):
                submit_fault(h)
            with pytest.raises(KafkaError) as raised:
                await h.do_commit()
            assert raised.value.code is UNAVAILABLE
            assert h.classic.heartbeat("g", "m", None, 1) is UNAVAILABLE
            assert h.groups.read_error("g") is UNAVAILABLE
            await h.groups.host.sweep()
            # Other groups do not notice.
            await h.do_commit(group_id="h")
            assert h.offset("h") == 42

    @virtual
    async def test_a_group_that_cannot_be_read_back_stays_unavailable(
        self,
        clock: VirtualClock,
    ) -> None:
        log = MemoryOffsetsLog()
        async with running(clock, log) as h:
            await h.do_commit()

            def read(partition: int) -> None:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE)

            log.read = read  # type: ignore[method-assign, assignment]
            submit_fault(h)
            assert h.groups.read_error("g") is UNAVAILABLE


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "kohort.broker.coordinator.actor")
