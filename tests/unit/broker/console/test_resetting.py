"""Setting a group's offsets in the console: plans, their confirmation, rights, and other sites."""

from http import HTTPStatus
from typing import Any

import pytest

from kohort.broker.console.resetting import PLAN_MS, PLANS_MAX
from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.http.messages import BadRequestError, HttpResponse
from tests.unit.broker.console.viewed_pages import LookedAt, looked_at

PATH = "/api/groups/g/reset"


class Reader:
    """A requester with READ on some topics and groups."""

    def __init__(self, name: str, *readable: str) -> None:
        self.principal = name
        self._readable = readable

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        del kind
        return operation is Operation.READ and name in self._readable

    sees = may


async def status(broker: LookedAt, path: str, query: str = "", **request: Any) -> HTTPStatus:  # noqa: ANN401 - fields of many types.
    answer = await broker.answer(path, query, **request)
    assert isinstance(answer, HttpResponse)
    return answer.status


async def execute(broker: LookedAt, token: str, path: str = PATH, **request: Any) -> HTTPStatus:  # noqa: ANN401 - fields of many types.
    return await status(broker, path, method="POST", confirm=token, **request)


def offset(broker: LookedAt, index: int) -> int | None:
    committed = broker.groups.committed("g", "t", index)
    return None if committed is None else committed.offset


async def with_records(broker: LookedAt) -> None:
    """Ten records in partition 0, of which the group has read seven."""
    for at_ms in range(10):
        broker.produce("t", 0, 1_000 + at_ms)
    await broker.commit("g", t0=7)


@pytest.mark.parametrize(
    ("query", "after"),
    [
        ("to=earliest", 0),
        ("to=latest", 10),
        ("to=offset&at=4", 4),
        ("to=offset&at=400", 10),
        ("to=shift&at=-2", 5),
        ("to=shift&at=-9", 0),
        ("to=time&at=1003", 3),
        ("to=time&at=9999", 10),
    ],
)
async def test_a_plan_is_shown_and_changes_nothing_until_it_is_confirmed(
    query: str, after: int
) -> None:
    async with looked_at() as broker:
        await with_records(broker)
        plan = await broker.ask(PATH, query)
        assert plan["moves"] == [
            {"topic": "t", "partition": 0, "before": 7, "after": after, "end": 10}
        ]
        assert offset(broker, 0) == 7
        # What was shown is set, whatever happens meanwhile.
        broker.produce("t", 0, 1_100)
        assert await execute(broker, plan["token"]) is HTTPStatus.OK
        assert offset(broker, 0) == after
        assert await execute(broker, plan["token"]) is HTTPStatus.CONFLICT


async def test_a_topic_that_the_group_has_not_read_can_be_given_and_a_partition() -> None:
    async with looked_at() as broker:
        await broker.topics.changes.create_topic("u", partition_count=2)
        await with_records(broker)
        whole = await broker.ask(PATH, "to=earliest&topic=u")
        one = await broker.ask(PATH, "to=earliest&topic=t&partition=1")
    assert [(move["topic"], move["partition"]) for move in whole["moves"]] == [("u", 0), ("u", 1)]
    assert [(move["partition"], move["before"]) for move in one["moves"]] == [(1, None)]


async def test_a_group_with_members_keeps_its_offsets() -> None:
    async with looked_at() as broker:
        await with_records(broker)
        await broker.settle("g", "c", 0)
        plan = await broker.ask(PATH, "to=earliest")
        assert plan["member_count"] == 1
        answer = await broker.answer(PATH, method="POST", confirm=plan["token"])
        assert isinstance(answer, HttpResponse)
        assert answer.status is HTTPStatus.CONFLICT
        assert b"has members" in b"".join(answer.body)
        assert offset(broker, 0) == 7


@pytest.mark.parametrize("site", ["cross-site", "same-site", "none"])
async def test_another_site_can_neither_ask_nor_confirm(site: str) -> None:
    async with looked_at() as broker:
        await with_records(broker)
        plan = await broker.ask(PATH, "to=earliest")
        # It could not have read the token, and is refused even with it.
        assert await execute(broker, plan["token"], fetch_site=site) is HTTPStatus.FORBIDDEN
        if site != "none":
            asked = await status(broker, PATH, "to=earliest", fetch_site=site)
            assert asked is HTTPStatus.FORBIDDEN
        assert offset(broker, 0) == 7
        assert await execute(broker, plan["token"], fetch_site="same-origin") is HTTPStatus.OK


@pytest.mark.parametrize("token", ["", "x", "0" * 32])
async def test_nothing_is_set_without_the_token_of_a_plan(token: str) -> None:
    async with looked_at() as broker:
        await with_records(broker)
        await broker.ask(PATH, "to=earliest")
        assert await execute(broker, token) is HTTPStatus.CONFLICT
        assert offset(broker, 0) == 7


async def test_a_plan_is_for_its_group_and_its_requester_and_for_a_while() -> None:
    async with looked_at() as broker:
        await with_records(broker)
        await broker.commit("other", t0=1)
        owner, thief = Reader("User:a", "g", "t"), Reader("User:b", "g", "t")
        answer = await broker.ask(PATH, "to=earliest", requester=owner)
        token = answer["token"]
        assert await execute(broker, token, requester=thief) is HTTPStatus.CONFLICT
        assert await execute(broker, token) is HTTPStatus.CONFLICT
        elsewhere = await broker.ask("/api/groups/other/reset", "to=earliest")
        assert await execute(broker, elsewhere["token"]) is HTTPStatus.CONFLICT
        broker.clock.advance(PLAN_MS + 1)
        assert await execute(broker, token, requester=owner) is HTTPStatus.CONFLICT
        assert offset(broker, 0) == 7


async def test_there_are_only_so_many_plans() -> None:
    async with looked_at() as broker:
        await with_records(broker)
        plans = [await broker.ask(PATH, "to=earliest") for _ in range(PLANS_MAX + 1)]
        assert await execute(broker, plans[0]["token"]) is HTTPStatus.CONFLICT
        assert await execute(broker, plans[1]["token"]) is HTTPStatus.OK


@pytest.mark.parametrize("readable", [(), ("g",), ("t",)])
async def test_it_needs_read_on_the_group_and_the_topic_for_both_steps(
    readable: tuple[str, ...],
) -> None:
    async with looked_at() as broker:
        await with_records(broker)
        reader = Reader("User:a", "g", "t")
        plan = await broker.ask(PATH, "to=earliest", requester=reader)
        lesser = Reader("User:a", *readable)
        asked = await status(broker, PATH, "to=earliest", requester=lesser)
        assert asked is HTTPStatus.FORBIDDEN
        # The right was withdrawn meanwhile.
        executed = await execute(broker, plan["token"], requester=lesser)
        assert executed is HTTPStatus.FORBIDDEN
        assert offset(broker, 0) == 7


async def test_without_authentication_it_is_for_those_who_could_commit_without() -> None:
    async with looked_at(is_open_to_anonymous=False) as broker:
        await with_records(broker)
        assert await status(broker, PATH, "to=earliest") is HTTPStatus.FORBIDDEN
        assert await execute(broker, "x") is HTTPStatus.FORBIDDEN


async def test_a_topic_that_was_made_again_is_another_one() -> None:
    async with looked_at() as broker:
        await with_records(broker)
        plan = await broker.ask(PATH, "to=earliest")
        topic = broker.topics.get("t")
        assert topic is not None
        await broker.topics.changes.delete_topics([topic])
        await broker.topics.changes.create_topic("t", partition_count=3)
        assert await execute(broker, plan["token"]) is HTTPStatus.CONFLICT


@pytest.mark.parametrize(
    "query",
    [
        "",
        "to=middle",
        "to=offset",
        "to=offset&at=-1",
        "to=offset&at=" + "9" * 30,
        "to=time&at=yesterday",
        "to=earliest&topic=t&partition=3",
        "to=earliest&topic=t&partition=x",
    ],
)
async def test_what_is_malformed_is_a_bad_request(query: str) -> None:
    async with looked_at() as broker:
        await with_records(broker)
        with pytest.raises(BadRequestError):
            await broker.answer(PATH, query)


async def test_what_does_not_exist_is_not_found() -> None:
    async with looked_at() as broker:
        await with_records(broker)
        none = await status(broker, "/api/groups/none/reset", "to=earliest")
        topic = await status(broker, PATH, "to=earliest&topic=none")
    assert (none, topic) == (HTTPStatus.NOT_FOUND, HTTPStatus.NOT_FOUND)
