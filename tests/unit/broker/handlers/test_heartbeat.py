"""Heartbeat by version."""

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.support.groups.running_groups import running_groups


@pytest.mark.parametrize("version", range(5))
async def test_a_member_is_told_that_all_is_well(version: int) -> None:
    async with running_groups() as g:
        member_id = await g.lone_member()
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
        assert await g.ask(request, version) == HeartbeatResponse(error_code=ErrorCode.NONE)
        request.generation_id = 2
        assert (await g.ask(request, version)).error_code == ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", [3, 4])
async def test_a_process_that_lost_its_instance_id_is_fenced(version: int) -> None:
    async with running_groups() as g:
        member_id = await g.lone_member()
        await g.join(instance="i")
        request = HeartbeatRequest(
            group_id="g", generation_id=1, member_id=member_id, group_instance_id="i"
        )
        assert (await g.ask(request, version)).error_code == ErrorCode.FENCED_INSTANCE_ID
