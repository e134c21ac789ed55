"""LeaveGroup by version."""

import pytest

from kohort.protocol.errors import ErrorCode
from tests.support import messages as m
from tests.support.groups.running_groups import running_groups


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_before_version_3_one_member_leaves_and_the_error_is_at_the_top(version: int) -> None:
    async with running_groups() as g:
        member_id = await g.lone_member()
        request = m.LeaveGroupRequest(group_id="g", member_id="stranger")
        unknown = m.LeaveGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        assert await g.ask(request, version) == unknown
        request.group_id = "nobody's"
        assert await g.ask(request, version) == unknown
        request = m.LeaveGroupRequest(group_id="g", member_id=member_id)
        assert await g.ask(request, version) == m.LeaveGroupResponse(error_code=ErrorCode.NONE)


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_from_then_on_each_has_its_own_and_is_named_as_it_was_sent(version: int) -> None:
    async with running_groups() as g:
        await g.lone_member()
        members = [
            m.MemberIdentity(member_id="stranger", group_instance_id="j"),
            m.MemberIdentity(member_id="", group_instance_id="i", reason="removed"),
        ]
        answer = await g.ask(m.LeaveGroupRequest(group_id="g", members=members), version)
        assert answer == m.LeaveGroupResponse(
            error_code=ErrorCode.NONE,
            members=[
                m.MemberResponse(
                    member_id="stranger",
                    group_instance_id="j",
                    error_code=ErrorCode.UNKNOWN_MEMBER_ID,
                ),
                m.MemberResponse(member_id="", group_instance_id="i", error_code=ErrorCode.NONE),
            ],
        )


async def test_an_empty_leave_is_allowed() -> None:
    async with running_groups() as g:
        answer = await g.ask(m.LeaveGroupRequest(group_id="g"), 5)
        assert answer == m.LeaveGroupResponse(error_code=ErrorCode.NONE, members=[])


@pytest.mark.parametrize("version", range(6))
async def test_a_group_must_have_an_id(version: int) -> None:
    async with running_groups() as g:
        request = m.LeaveGroupRequest(
            group_id="",
            member_id="m" if version < 3 else "",
            members=[] if version < 3 else [m.MemberIdentity(member_id="m")],
        )
        expected = m.LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        assert await g.ask(request, version) == expected
