"""A group of another kind than the classic one is served by the shell as it is."""

from typing import Any, cast

from kohort.broker.core.group.classic.group import ClassicGroup
from kohort.broker.core.group.classic.leave import ENTRIES_PER_STEP
from kohort.broker.core.group.group import Group
from kohort.broker.core.group.requests import JoinResult, LeaveEntry, SyncResult
from kohort.protocol.errors import ErrorCode
from kohort.testing.virtual_clock import VirtualClock
from tests.support.virtual_time import virtual
from tests.unit.broker.coordinator.harness import Harness, running


class OtherGroup:
    """Does what a group of any kind does, as a classic one would, and is none."""

    def __init__(self, classic: ClassicGroup) -> None:
        self._classic = classic

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        assert hasattr(Group, name) or name in Group.__annotations__, f"{name} is of classic groups"
        return getattr(self._classic, name)


def other(classic: ClassicGroup) -> Group:
    return cast(Group, OtherGroup(classic))


async def leave(groups: Harness, count: int) -> tuple[ErrorCode, ...]:
    entries = [LeaveEntry(f"m-{number}") for number in range(count)]
    return (await groups.groups.leave("g", entries)).entries


@virtual
async def test_it_commits_and_is_described(clock: VirtualClock) -> None:
    async with running(clock, as_group=other) as groups:
        await groups.do_commit(42)
        assert groups.offset() == 42
        described = groups.groups.describe("g")
        assert described is not None
        assert described.state == "Empty"
        assert groups.groups.classic_group("g") is None
        assert await groups.groups.delete_group("g") == ErrorCode.NONE
        assert groups.state() is None


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
