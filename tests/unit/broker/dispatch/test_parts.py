"""Long requests in parts, and the responses joined again."""

from typing import Any

import pytest

from kohort.broker.dispatch.parts import Lists, join
from kohort.broker.dispatch.registry import Api
from kohort.broker.handlers import load_handlers
from kohort.protocol.message import RESPONSES
from tests.support import messages as m


def test_different_elements_without_inner_lists_are_kept_apart() -> None:
    def response(state: str) -> m.DescribeGroupsResponse:
        group = m.DescribedGroup(
            error_code=0, group_id="g", group_state=state, protocol_type="", protocol_data="",
            members=[],
        )  # fmt: skip
        return m.DescribeGroupsResponse(groups=[group])

    whole = response("Empty")
    join(whole, response("Empty"), ("groups",), continues=False)
    assert [group.group_state for group in whole.groups] == ["Empty", "Empty"]


@pytest.mark.parametrize(
    ("api", "path"),
    [
        pytest.param(api, one, id=f"{api.name}-{'.'.join(one.request)}")
        for api in load_handlers().values()
        for one in api.parts
    ],
)
def test_the_registered_lists_exist(api: Api, path: Lists) -> None:
    for message, names in ((api.request, path.request), (RESPONSES[api.key], path.response)):
        kind: Any = message
        for name in names:
            (field,) = (one for one in kind.schema.fields if one.name == name)
            assert field.is_array
            kind = field.kind
