"""Routing and lifecycle of the coordinator."""

import asyncio
from collections.abc import Iterator

import pytest

from kohort.broker.coordinator.offsets_log import Stored
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.virtual_clock import VirtualClock
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.virtual_time import virtual
from tests.unit.broker.coordinator.harness import running


class TestTime:
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
            assert h.classic.heartbeat("g", "m", None, 1) is unavailable
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
            assert h.classic.heartbeat("g", "m", None, 1) is ErrorCode.NOT_COORDINATOR
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
