"""JoinGroup by version."""

import asyncio

import pytest

from kohort.groups.classic.membership import ClassicMembership
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.membership import JoinGroupRequestProtocol, JoinGroupResponse
from tests.support.groups.running_groups import SUBSCRIPTION, RunningGroups, running_groups


async def test_the_first_version_waits_as_long_as_a_session_lasts() -> None:
    async with running_groups() as g:
        await g.join(0, session_timeout_ms=20_000)
        group = g.groups.host.membership("g", ClassicMembership)
        assert group is not None
        assert group.roster.rebalance_timeout_ms() == 20_000
        await g.join(1, group_id="h", rebalance_timeout_ms=-1)
        other = g.groups.host.membership("h", ClassicMembership)
        assert other is not None
        assert other.roster.rebalance_timeout_ms() == 0


async def parked(g: RunningGroups, count: int, group_id: str = "g") -> None:
    """Wait until so many joins wait for others."""
    group = g.groups.host.membership(group_id, ClassicMembership)
    assert group is not None
    async with asyncio.timeout(60):
        while group.roster.parked_joins != count:  # noqa: ASYNC110 - a group has no event for it.
            await asyncio.sleep(0)


@pytest.mark.parametrize("version", [5, 6, 7, 8, 9])
@pytest.mark.parametrize("id_length", [4, 126, 127, 128, 257])
async def test_a_follower_is_told_its_own_id_however_long(version: int, id_length: int) -> None:
    """Lengths about the one up to which they are written in a byte, counted in bytes."""
    instance = "ä" + "i" * (id_length - 4)
    async with running_groups() as g:
        leader = await g.lone_member()
        joining = [asyncio.ensure_future(g.join(version, instance=one)) for one in (instance, "j")]
        await parked(g, 2)
        await g.join(member_id=leader, instance="i")
        answers = await asyncio.gather(*joining)
    ids = [f"{instance}-2", "j-3"]
    assert len(ids[0].encode()) == id_length
    assert answers == [
        JoinGroupResponse(
            error_code=ErrorCode.NONE,
            generation_id=2,
            protocol_type="consumer" if version >= 7 else None,
            protocol_name="range",
            leader=leader,
            member_id=member_id,
            members=[],
        )
        for member_id in ids
    ]


async def test_generations_and_groups_are_not_taken_for_each_other() -> None:
    async with running_groups() as g:
        answers = {}
        for group_id in ("g", "h"):
            leader = (await g.join(group_id=group_id, instance="i")).member_id
            for generation in (2, 3):
                # What it offers has changed, so all members have to join again.
                metadata = SUBSCRIPTION + bytes([generation])
                offer = [JoinGroupRequestProtocol(name="range", metadata=metadata)]
                joining = asyncio.ensure_future(
                    g.join(group_id=group_id, instance="j", protocols=offer)
                )
                await parked(g, 1, group_id)
                await g.join(group_id=group_id, member_id=leader, instance="i", protocols=offer)
                answers[group_id, generation] = await joining
    assert [(one.generation_id, one.leader) for one in answers.values()] == [
        (2, "i-1"),
        (3, "i-1"),
        (2, "i-4"),
        (3, "i-4"),
    ]
