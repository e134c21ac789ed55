"""The pages of one group: members, positions, the last rebalance, and each record."""

from http import HTTPStatus

import pytest

from kohort.broker.http.messages import BadRequestError, HttpResponse
from tests.unit.broker.console.viewed_pages import LookedAt, looked_at


async def test_positions_are_told_with_their_member_lag_and_last_commit() -> None:
    async with looked_at() as broker:
        now_ms = broker.clock.wall_ms()
        broker.produce("t", 0, now_ms - 8_000, now_ms - 2_000)
        await broker.commit("g", t0=1, t1=0)
        member_id = await broker.settle("g", "c", 0, 2)
        broker.clock.advance(1_000)
        told = await broker.ask("/api/groups/g")
    assert (told["state"], told["generation"]) == ("Stable", 1)
    assert (told["lag"], told["lag_ms"]) == (1, 3_000)
    first, second = told["partitions"]
    assert (first["topic"], first["partition"], first["member_id"]) == ("t", 0, member_id)
    assert (first["committed"], first["end"], first["lag"], first["lag_ms"]) == (1, 2, 1, 3_000)
    assert first["committed_at_ms"] == now_ms
    assert (second["partition"], second["member_id"], second["lag_ms"]) == (1, None, 0)
    (member,) = told["members"]
    assert (member["assignment"], member["partition_count"]) == ({"t": [0, 2]}, 2)
    assert told["waiting"] is None


async def test_who_is_waited_for_is_told_while_it_lasts() -> None:
    async with looked_at() as broker:
        await broker.settle("g", "old")
        broker.clock.advance(3_000)
        joined = broker.join("g", "new", instance="other")
        told = await broker.ask("/api/groups/g")
        joined.cancel()
    (awaited,) = told["waiting"]["members"]
    assert awaited["instance_id"] == "old-static"
    assert told["waiting"]["until_ms"] == broker.clock.wall_ms() + 60_000
    assert told["last"]["outcome"] == "running"


async def test_records_are_listed_in_short_and_told_one_by_one_with_their_members() -> None:
    async with looked_at() as broker:
        member_id = await broker.settle("g")
        await broker.leave("g", member_id)
        listed = await broker.ask("/api/groups/g/rebalances")
        newest = await broker.ask("/api/groups/g/rebalances", "last=1")
        one = await broker.ask("/api/groups/g/rebalances/1")
        missing = await broker.answer("/api/groups/g/rebalances/9")
    assert [record["sequence"] for record in listed["records"]] == [1, 2]
    assert [record["sequence"] for record in newest["records"]] == [2]
    assert "members" in listed["records"][0]
    assert listed["records"][1]["outcome"] == "empty"
    assert [member["member_id"] for member in one["members"]] == [member_id]
    assert one["sentence"] == listed["records"][0]["sentence"]
    assert isinstance(missing, HttpResponse)
    assert missing.status is HTTPStatus.NOT_FOUND


async def test_two_processes_that_come_back_are_told_as_a_deploy() -> None:
    async with looked_at() as broker:
        for client in ("c", "d", "c"):
            await broker.leave("g", await broker.settle("g", client))
        await broker.settle("g", "d")
        listed = await broker.ask("/api/groups/g/rebalances")
        newest = await broker.ask("/api/groups/g/rebalances", "last=1")
        group = await broker.ask("/api/groups/g")
    (deploy,) = [act for act in listed["acts"] if act["kind"] == "deploy"]
    last = listed["records"][-1]
    assert deploy["last_sequence"] == last["sequence"]
    assert deploy["ended_at_ms"] == last["at_ms"] + last["took_ms"]
    assert deploy["processes"] == ["c-static", "d-static"]
    assert newest["acts"] == listed["acts"]
    assert group["act"] == deploy


async def test_every_record_is_found_by_its_number_though_avoided_ones_lie_between() -> None:
    async with looked_at() as broker:
        for _ in range(6):
            member_id = await broker.settle("g")
            # A static member that comes back with the same subscription avoids a rebalance.
            await broker.join("g", "c", instance="c-static")
            broker.history.drain()
            await broker.leave("g", member_id)
        listed = await broker.ask("/api/groups/g/rebalances")
        numbers = [record["sequence"] for record in listed["records"]]
        for number in numbers:
            one = await broker.ask(f"/api/groups/g/rebalances/{number}")
            assert one["sequence"] == number
    assert len(numbers) > 3


async def test_a_group_that_is_gone_has_a_history_and_one_that_never_was_has_none() -> None:
    async with looked_at() as broker:
        await broker.leave("g", await broker.settle("g"))
        await broker.groups.delete_group("g")
        broker.history.drain()
        gone = await broker.ask("/api/groups/g")
        history = await broker.ask("/api/groups/g/rebalances")
        never = await broker.ask("/api/groups/never")
    assert "its history is still available" in gone["error"]
    assert (history["state"], len(history["records"])) == (None, 2)
    assert never == {"error": "no such group"}


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/api/groups", "sort=secret"),
        ("/api/groups", "page=0"),
        ("/api/groups", "unknown=1"),
        ("/api/groups/g/rebalances/x1", ""),
        ("/api/groups/g/rebalances", "last=100000"),
        ("/api/topics", "page=-1"),
    ],
)
async def test_a_query_that_cannot_be_meant_is_refused(path: str, query: str) -> None:
    async with looked_at() as broker:
        with pytest.raises(BadRequestError):
            await broker.ask(path, query)


DATA = ("/api/groups", "/api/groups/g", "/api/checks", "/api/topics/t", "/events")


OTHERS = (
    "/api/broker",
    "/api/groups/g/rebalances",
    "/api/groups/g/rebalances/0",
    "/api/groups/none",
    "/api/groups/none/advice",
    "/api/topics",
    "/api/topics/none",
)


@pytest.mark.parametrize("path", [*DATA, *OTHERS])
async def test_a_page_from_elsewhere_is_given_no_data(path: str) -> None:
    async with looked_at() as broker:
        await broker.settle("g")
        for site in ("cross-site", "same-site"):
            answer = await broker.answer(path, fetch_site=site)
            assert isinstance(answer, HttpResponse)
            assert answer.status is HTTPStatus.FORBIDDEN


async def test_each_answer_has_the_policy() -> None:
    async with looked_at() as broker:
        await broker.settle("g")
        for path in (*DATA, "/", "/static/app.js", "/static/none.js", "/api/groups/none"):
            answer = await broker.answer(path)
            policy = dict(answer.headers)["Content-Security-Policy"]
            assert policy.startswith("default-src 'none'; script-src 'self';")
            _close(answer)


def _close(answer: object) -> None:
    if not isinstance(answer, HttpResponse):
        answer.close()  # type: ignore[attr-defined]


async def checks(broker: LookedAt) -> dict[str, list[str]]:
    """Names of checks that found something, by group."""
    told = await broker.ask("/api/checks")
    return {one["group"]: [found["check"] for found in one["findings"]] for one in told["groups"]}


async def test_all_groups_are_checked() -> None:
    async with looked_at() as broker:
        broker.produce("t", 0, broker.clock.wall_ms())
        await broker.commit("stuck", t0=0)
        broker.clock.advance(600_000)
        await broker.settle("fine", "c", 0)
        await broker.settle("idle", "c")
        found = await checks(broker)
    assert found == {"idle": ["idle-members"], "stuck": ["stands-still"]}


async def test_a_record_that_is_over_is_told_again_until_there_is_another() -> None:
    async with looked_at() as broker:
        await broker.settle("g")
        first = await broker.ask("/api/groups/g")
        again = await broker.ask("/api/groups/g")
        await broker.leave("g", first["members"][0]["member_id"])
        other = await broker.ask("/api/groups/g")
    assert again["last"] == first["last"]
    assert other["last"]["sequence"] == first["last"]["sequence"] + 1
