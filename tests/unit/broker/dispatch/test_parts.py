"""Long requests in parts, and the responses joined again."""

import random
from typing import Any

import pytest

from kohort.broker.dispatch.parts import Lists, join, parts_of
from kohort.broker.dispatch.registry import Api
from kohort.broker.handlers import load_handlers
from kohort.protocol.message import RESPONSES
from tests.support import messages as m

NESTED = ("topics", "partitions")


def request_of(*counts: int) -> m.OffsetDeleteRequest:
    """Topics with these numbers of partitions; two of each name."""
    return m.OffsetDeleteRequest(
        group_id="g",
        topics=[
            m.OffsetDeleteRequestTopic(
                name=f"t{number // 2}",
                partitions=[
                    m.OffsetDeleteRequestPartition(partition_index=index) for index in range(count)
                ],
            )
            for number, count in enumerate(counts)
        ],
    )


def answered(request: m.OffsetDeleteRequest, error_code: int = 0) -> m.OffsetDeleteResponse:
    """Return a response with an entry for everything that the request names."""
    return m.OffsetDeleteResponse(
        error_code=error_code,
        topics=[
            m.OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    m.OffsetDeleteResponsePartition(
                        partition_index=one.partition_index, error_code=0
                    )
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def elements_in(request: m.OffsetDeleteRequest) -> int:
    """Count as `parts_of` does: an empty topic counts as one."""
    return sum(max(1, len(topic.partitions)) for topic in request.topics)


@pytest.mark.parametrize("seed", range(200))
def test_parts_are_bounded_and_their_joined_responses_are_the_response(seed: int) -> None:
    chance = random.Random(seed)
    counts = [chance.choice((0, 1, 2, 9, 10, 11, 35)) for _ in range(chance.randrange(12))]
    request = request_of(*counts)
    whole = None
    for part, continues in parts_of(request, NESTED, 10):
        assert part.group_id == "g"
        assert elements_in(part) <= 10
        if whole is None:
            whole = answered(part)
        else:
            join(whole, answered(part), NESTED, continues=continues)
    assert whole == answered(request_of(*counts))
    assert request == request_of(*counts), "the request itself is unchanged"


def test_a_list_of_texts_is_split_as_well() -> None:
    request = m.DescribeGroupsRequest(groups=[f"g{number}" for number in range(25)])
    parts = [part.groups for part, _ in parts_of(request, ("groups",), 10)]
    assert [len(part) for part in parts] == [10, 10, 5]
    assert [name for part in parts for name in part] == request.groups


def test_a_null_list_is_one_part() -> None:
    request = m.DescribeGroupsRequest(groups=[])
    assert list(parts_of(request, ("groups",), 10)) == [(request, False)]


def test_an_error_of_a_later_part_is_that_of_the_response() -> None:
    whole = answered(request_of(1))
    join(whole, answered(request_of(), error_code=16), NESTED, continues=False)
    join(whole, answered(request_of(), error_code=3), NESTED, continues=False)
    assert whole.error_code == 16


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
