"""A group of another kind than classic appears in every front end, with its own state and epoch."""

import json
from typing import Any

import pytest

from kohort.broker.console.checks import all_findings
from kohort.broker.console.recent import Recents
from kohort.broker.http.group_pages import GroupPages
from kohort.broker.http.messages import HttpRequest
from kohort.protocol.errors import ErrorCode
from kohort.testing import VirtualKafka
from tests.support import messages as m
from tests.support.groups.rota import convert_to_rota, join_rota, rota_codec
from tests.support.groups.running_groups import running_groups
from tests.unit.broker.console.viewed_pages import LookedAt, looked_at

__all__ = ["rota_codec"]

pytestmark = pytest.mark.usefixtures("rota_codec")


async def rotating(broker: LookedAt) -> None:
    """Group "g" rotates between two members."""
    await broker.commit("g", t0=1)
    assert await convert_to_rota(broker.groups.host, "a", "b") is ErrorCode.NONE


async def test_it_is_listed_with_its_type_and_is_no_group_for_describe_groups() -> None:
    async with running_groups() as g:
        await g.lone_member()
        assert await convert_to_rota(g.groups.host, "a") is ErrorCode.NONE
        (listed,) = (await g.ask(m.ListGroupsRequest(types_filter=["Rota"]))).groups
        assert (listed.group_id, listed.group_type) == ("g", "rota")
        assert (listed.group_state, listed.protocol_type) == ("Rotating", "consumer")
        assert not (await g.ask(m.ListGroupsRequest(types_filter=["classic"]))).groups
        (described,) = (await g.ask(m.DescribeGroupsRequest(groups=["g"]), 6)).groups
        assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert described.error_message == "Group g is not a classic group."
        (described,) = (await g.ask(m.DescribeGroupsRequest(groups=["g"]), 5)).groups
        assert (described.error_code, described.group_state) == (ErrorCode.NONE, "Dead")


async def test_offsets_are_fetched_by_its_members_of_the_current_epoch() -> None:
    async with running_groups() as g:
        await g.lone_member()
        await convert_to_rota(g.groups.host, "a")
        topics = [m.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        for epoch, error in ((2, ErrorCode.NONE), (1, ErrorCode.STALE_MEMBER_EPOCH)):
            group = m.OffsetFetchRequestGroup(
                group_id="g", member_id="a", member_epoch=epoch, topics=topics
            )
            (answer,) = (await g.ask(m.OffsetFetchRequest(groups=[group]), 9)).groups
            assert answer.error_code == error


async def test_http_pages_show_it() -> None:
    async with looked_at() as broker:
        await rotating(broker)
        pages = GroupPages(broker.groups.host, broker.history)

        async def ask(page: Any, *values: str) -> Any:  # noqa: ANN401 - as JSON has it.
            response = await page(HttpRequest("GET", "/", "", "", values))
            return json.loads(b"".join(response.body))

        (listed,) = (await ask(pages.list_groups))["groups"]
        assert (listed["state"], listed["generation"], listed["members"]) == ("Rotating", 1, 2)
        shown = await ask(pages.describe, "g")
        assert (shown["state"], shown["protocol"], shown["leader"]) == ("Rotating", "rota", None)
        assert [member["assignment"] for member in shown["members"]] == [{"t": [0]}, {}]
        assert "waiting" not in shown
        history = await ask(pages.rebalances, "g")
        assert (history["state"], history["generation"]) == ("Rotating", 1)


async def test_the_console_shows_and_checks_it() -> None:
    async with looked_at() as broker:
        broker.produce("t", 0, broker.clock.wall_ms(), broker.clock.wall_ms())
        await rotating(broker)
        (row,) = (await broker.ask("/api/groups", "state=Rotating"))["groups"]
        assert (row["members"], row["assignor"], row["generation"], row["lag"]) == (2, "rota", 1, 1)
        page = await broker.ask("/api/groups/g")
        assert (page["state"], page["protocol"], page["waiting"]) == ("Rotating", "rota", None)
        assert [member["partition_count"] for member in page["members"]] == [1, 0]
        assert page["partitions"][0]["member_id"] == "a"
        (reader,) = (await broker.ask("/api/topics/t"))["groups"]
        assert (reader["group"], reader["state"], reader["members"]) == ("g", "Rotating", 2)
        group = broker.groups.host.group("g")
        assert group is not None
        assert group.describe().is_stable
        recent = Recents().recent(broker.history, "g", broker.clock.wall_ms())
        found = all_findings(group, broker.source, (), recent, broker.groups.host.now())
        assert [finding.member_ids for finding in found if finding.check == "idle-members"] == [
            ("b",)
        ]


async def test_the_test_kit_waits_for_it_and_lists_its_members(
    virtual_kafka: VirtualKafka,
) -> None:
    await virtual_kafka.create_topic("t", partitions=1)
    await virtual_kafka.produce("t", b"value")
    host = virtual_kafka._kit.broker.services.groups.host
    assert await join_rota(host, "first") == 1
    assert await convert_to_rota(host, "a", "b") is ErrorCode.NONE
    group = virtual_kafka.group("g")
    await group.wait(state="Rotating", members=2, lag=1)
    assert [(member.client_id, member.partitions) for member in group.members] == [
        ("client of a", [("t", 0)]),
        ("client of b", []),
    ]
