"""SyncGroup by version."""

import pytest

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
