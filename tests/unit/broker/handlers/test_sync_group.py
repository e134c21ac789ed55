"""SyncGroup by version."""

import pytest

from kohort.protocol.errors import ErrorCode
from tests.support.groups.running_groups import running_groups


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("length", [0, 126, 127, 128, 100_000])
async def test_an_assignment_may_be_of_any_length(version: int, length: int) -> None:
    """Lengths about the one up to which they are written in a byte."""
    async with running_groups() as g:
        member_id = (await g.join(instance="i")).member_id
        waiting = await g.sync(member_id, 1, version, [(member_id, b"x" * length)])
        again = await g.sync(member_id, 1, version)
    assert waiting == again
    assert waiting.assignment == b"x" * length


@pytest.mark.parametrize("absent", ["protocol_type", "protocol_name"])
@pytest.mark.parametrize("group_id", ["g", "nobody's", ""])
async def test_version_5_must_name_the_protocol_before_anything_else(
    absent: str, group_id: str
) -> None:
    async with running_groups() as g:
        await g.lone_member()
        given: dict[str, str | None] = {"protocol_type": "consumer", "protocol_name": "range"}
        given[absent] = None
        answer = await g.sync(
            "m",
            1,
            group_id=group_id,
            protocol_type=given["protocol_type"],
            protocol_name=given["protocol_name"],
        )
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
