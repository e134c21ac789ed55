"""A group with a membership of another kind than classic is served by the same shell, and groups
change their membership.
"""

import asyncio

import pytest

from kohort.broker.coordinator.command import Command
from kohort.broker.runtime.deferred import Deferred
from kohort.groups.classic.leave import ENTRIES_PER_STEP
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.group import Group
from kohort.groups.outbox import Answers
from kohort.groups.requests import CommitResult, JoinResult, LeaveEntry, Now, SyncResult
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.virtual_clock import VirtualClock
from tests.support.groups.rota import ROTA, Rota, convert_to_rota, join_rota, rota_codec
from tests.support.memory_logs import MemoryOffsetsLog
from tests.support.virtual_time import virtual
from tests.unit.broker.coordinator.harness import Harness, running

__all__ = ["rota_codec"]

pytestmark = pytest.mark.usefixtures("rota_codec")

KINDS = {ROTA: Rota}
STALE = ErrorCode.STALE_MEMBER_EPOCH


def rota_of(h: Harness) -> Rota:
    group = h.groups.host.group("g")
    assert group is not None
    assert isinstance(group.membership, Rota)
    return group.membership


async def leave(h: Harness, count: int) -> tuple[ErrorCode, ...]:
    entries = [LeaveEntry(f"m-{number}") for number in range(count)]
    return (await h.classic.leave("g", entries)).entries


@virtual
async def test_its_members_join_and_commit_and_others_may_not(clock: VirtualClock) -> None:
    async with running(clock, others=KINDS) as h:
        assert await join_rota(h.groups.host, "a") == 1
        assert await join_rota(h.groups.host, "b") == 2
        answer = await h.do_commit(42, member_id="a", generation=2)
        assert answer == CommitResult((ErrorCode.NONE,))
        assert (await h.do_commit(43, member_id="a", generation=1)).errors == (STALE,)
        assert (await h.do_commit(43)).errors == (ErrorCode.UNKNOWN_MEMBER_ID,)
        assert h.offset() == 42
        assert h.groups.validate_fetch("g", "a", 2) is ErrorCode.NONE
        assert h.groups.validate_fetch("g", "a", 1) is STALE
        assert await h.groups.delete_group("g") == ErrorCode.NON_EMPTY_GROUP


@virtual
async def test_its_sessions_end_and_its_offsets_are_kept(clock: VirtualClock) -> None:
    async with running(clock, others=KINDS) as h:
        await join_rota(h.groups.host, "a")
        await h.do_commit(42, member_id="a", generation=1)
        assert h.state() == "Rotating"
        await asyncio.sleep(6)
        assert h.state() == "Empty"
        assert h.offset() == 42
        assert await h.groups.delete_group("g") == ErrorCode.NONE
        assert h.state() is None


@virtual
async def test_it_is_restored_and_deleted_by_records_of_its_own(clock: VirtualClock) -> None:
    log = MemoryOffsetsLog()
    async with running(clock, log, others=KINDS) as h:
        await join_rota(h.groups.host, "a")
        await h.do_commit(42, member_id="a", generation=1)
    async with running(clock, log, others=KINDS) as h:
        assert (rota_of(h).epoch, rota_of(h).members, h.offset()) == (1, ["a"], 42)
        await asyncio.sleep(6)
        assert h.state() == "Empty"
        assert await h.groups.delete_group("g") == ErrorCode.NONE
    async with running(clock, log, others=KINDS) as h:
        assert h.state() is None


@virtual
async def test_a_classic_group_is_converted_and_keeps_its_offsets(clock: VirtualClock) -> None:
    log = MemoryOffsetsLog()
    async with running(clock, log, others=KINDS) as h:
        members = await h.stable_static("a")
        await h.do_commit(42, member_id=members["a"], generation=1)
        group = h.groups.host.group("g")
        assert await convert_to_rota(h.groups.host, members["a"]) is ErrorCode.NONE
        assert h.groups.host.group("g") is group
        assert h.member_memory.used_bytes == 0
        assert (rota_of(h).epoch, h.offset()) == (2, 42)
        # Both kinds have a timer of this key: only that of the new membership is left.
        await asyncio.sleep(4)
        assert h.state() == "Rotating"
        assert h.classic.heartbeat("g", members["a"], None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
        assert (await h.do_commit(43, member_id=members["a"], generation=2)).errors == (
            ErrorCode.NONE,
        )
        await asyncio.sleep(2)
        assert h.state() == "Empty"
    async with running(clock, log, others=KINDS) as h:
        assert (rota_of(h).epoch, h.offset()) == (3, 43)


@virtual
async def test_it_is_converted_to_a_classic_group(clock: VirtualClock) -> None:
    log = MemoryOffsetsLog()
    async with running(clock, log, others=KINDS) as h:
        await join_rota(h.groups.host, "a")
        await h.do_commit(42, member_id="a", generation=1)
        await asyncio.sleep(6)
        ticket: Deferred[ErrorCode] = Deferred()

        def to_offsets_alone(group: Group, now: Now) -> None:
            del now
            group.convert(None, (), Answers(ticket, ErrorCode.NONE, lambda error: error))

        h.groups.host.submit("g", Command(to_offsets_alone, ticket, is_exclusive=True))
        assert await ticket is ErrorCode.NONE
        await h.stable_static("b")
        assert h.groups.host.membership("g", ClassicMembership) is not None
    async with running(clock, log, others=KINDS) as h:
        restored = h.groups.host.membership("g", ClassicMembership)
        assert restored is not None
        assert [member.instance_id for member in restored.roster] == ["b"]
        assert h.offset() == 42


@virtual
async def test_a_conversion_that_cannot_be_stored_changes_nothing(clock: VirtualClock) -> None:
    log = MemoryOffsetsLog()
    async with running(clock, log, others=KINDS) as h:
        members = await h.stable_static("a")
        log.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        assert await convert_to_rota(h.groups.host, "m") is ErrorCode.NOT_COORDINATOR
        log.failure = None
        assert h.classic.heartbeat("g", members["a"], "a", 1) is ErrorCode.NONE
        assert h.state() == "Stable"


@virtual
async def test_requests_of_the_classic_protocol_are_refused_by_it(clock: VirtualClock) -> None:
    """By an answer, as Kafka does: an exception in a step would cost the group its memory."""
    async with running(clock, others=KINDS) as h:
        await join_rota(h.groups.host, "a")
        refused = JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
        assert h.ask_join() == refused
        assert h.ask_sync("m-0", 1) == SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)
        for count in (2, ENTRIES_PER_STEP + 1):
            assert await leave(h, count) == (ErrorCode.UNKNOWN_MEMBER_ID,) * count
        assert h.groups.host.stats()["faults"] == 0
