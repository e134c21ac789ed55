"""The pages about groups, over a real coordinator and a real history, without sockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

import pytest

from kohort.broker.coordinator.coordinator import GroupCoordinator
from kohort.broker.coordinator.requests.classic import ClassicRequests
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.history.history import RebalanceHistory
from kohort.broker.http import group_pages, json_parts
from kohort.broker.http.group_pages import GroupPages
from kohort.broker.http.messages import BadRequestError, HttpRequest, HttpResponse
from kohort.broker.runtime.clock import SystemClock
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.purgatory_shell import PurgatoryShell
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.reasons import NO_REASON
from kohort.groups.requests import (
    CommitRequest,
    JoinRequest,
    LeaveEntry,
    OffsetToCommit,
    SyncRequest,
)
from kohort.protocol.codec import encode_versioned
from kohort.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from tests.support.groups.coordinators import group_coordinator, report

ALL_OF_T = encode_versioned(
    ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="t", partitions=[2, 0])]),
    0,
)


class Asked:
    """A coordinator with its history, and somebody who asks their pages."""

    def __init__(self, groups: GroupCoordinator, history: RebalanceHistory) -> None:
        self.groups = groups
        self.classic = ClassicRequests(groups.host)
        self.history = history
        self.pages = GroupPages(groups.host, history)

    async def ask(self, page: str, group: str | None = None, query: str = "") -> Any:  # noqa: ANN401
        values = () if group is None else (group,)
        request = HttpRequest("GET", "/", query, "", values)
        response: HttpResponse = await getattr(self.pages, page)(request)
        assert response.content_type == "application/json"
        data = json.loads(b"".join(response.body))
        assert ("error" in data) == (response.status is not HTTPStatus.OK)
        return data

    def join(self, group: str, member_id: str = "", instance: str | None = None) -> Deferred[Any]:
        return self.classic.join(
            group,
            JoinRequest(
                member_id=member_id,
                instance_id=instance,
                client_id="client",
                client_host="/10.0.0.1",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=(("range", b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"),),
                reason=NO_REASON,
            ),
        )

    def sync(self, group: str, member_id: str, generation: int, share: bytes) -> Deferred[Any]:
        result = self.classic.sync(
            group,
            SyncRequest(
                member_id=member_id,
                instance_id=None,
                generation=generation,
                protocol_type="consumer",
                protocol_name="range",
                assignments={member_id: share},
            ),
        )
        assert isinstance(result, Deferred)
        return result

    async def settle(self, group: str, share: bytes = ALL_OF_T) -> str:
        """A group with one member, who has its assignment."""
        joined = await self.join(group, instance="i")
        await self.sync(group, joined.member_id, joined.generation, share)
        self.history.drain()
        member_id: str = joined.member_id
        return member_id

    async def until_there_are(self, group: str, members: int) -> None:
        """Joins wait in the group's inbox while an append is under way."""
        found = self.groups.host.membership(group, ClassicMembership)
        while found is None or len(found.roster) < members:
            await asyncio.sleep(0)
            found = self.groups.host.membership(group, ClassicMembership)

    async def leave(self, group: str, member_id: str) -> None:
        await self.classic.leave(group, [LeaveEntry(member_id)])
        self.history.drain()

    async def commit(self, group: str) -> None:
        """Commit as from outside of any membership, which makes a group."""
        request = CommitRequest((OffsetToCommit("t", 0, 7),))
        await self.groups.commit(group, request, may_answer_group_not_found=True)


@asynccontextmanager
async def asked(initial_delay_ms: int = 0) -> AsyncIterator[Asked]:
    clock = SystemClock()
    purgatory = Purgatory(report=report)
    shell = PurgatoryShell(purgatory, clock)
    history = RebalanceHistory(clock=clock)
    groups = group_coordinator(
        purgatory, clock, initial_delay_ms=initial_delay_ms, observers=[history]
    )
    await groups.host.start()
    try:
        yield Asked(groups, history)
    finally:
        await groups.host.close()
        shell.close()


async def turns_of(doing: Any) -> tuple[Any, int]:  # noqa: ANN401
    """What `doing` returns, and how many turns others had meanwhile."""
    task = asyncio.ensure_future(doing)
    turns = 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return task.result(), turns


async def test_groups_are_listed_in_order_with_what_they_do() -> None:
    async with asked() as broker:
        await broker.settle("b")
        await broker.commit("a")
        listed = await broker.ask("list_groups")
    a, b = listed["groups"]
    assert (listed["total"], listed["after"]) == (2, None)
    assert (a["group"], a["state"], a["protocol_type"], a["members"]) == ("a", "Empty", None, 0)
    assert b == {
        "group": "b",
        "state": "Stable",
        "protocol_type": "consumer",
        "generation": 1,
        "members": 1,
        "rebalances": 1,
        "avoided": 0,
    }


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
async def test_all_groups_are_seen_page_by_page(limit: int) -> None:
    names = ["a", "a/b", "ä", "B", "c & d", "z"]
    async with asked() as broker:
        for name in names:
            await broker.commit(name)
        seen: list[str] = []
        after = ""
        while True:
            page = await broker.ask("list_groups", query=f"limit={limit}{after}")
            assert len(page["groups"]) <= limit
            seen += [group["group"] for group in page["groups"]]
            if page["after"] is None:
                break
            quoted = "".join(f"%{byte:02x}" for byte in page["after"].encode())
            after = f"&after={quoted}"
    assert seen == sorted(names)


async def test_two_thousand_groups_are_listed_while_others_have_their_turns() -> None:
    async with asked() as broker:
        for number in range(2_000):
            await broker.commit(f"group {number}")
        listed, turns = await turns_of(broker.ask("list_groups", query="limit=10000"))
        first, _ = await turns_of(broker.ask("list_groups"))
    assert len(listed["groups"]) == 2_000
    assert turns > 10
    assert (len(first["groups"]), first["total"]) == (group_pages.GROUPS_DEFAULT, 2_000)


async def test_a_group_is_shown_with_its_members_and_what_they_read() -> None:
    async with asked() as broker:
        member_id = await broker.settle("g")
        group = await broker.ask("describe", "g")
    (member,) = group["members"]
    assert (group["state"], group["protocol"], group["leader"]) == ("Stable", "range", member_id)
    assert (group["member_count"], group["members_dropped"]) == (1, 0)
    assert member["assignment"] == {"t": [0, 2]}
    assert (member["instance_id"], member["host"], member["role"]) == ("i", "/10.0.0.1", "leader")
    assert group["last_rebalance"]["generation"] == 1
    assert "because member i-" in group["last_rebalance"]["sentence"]
    assert "waiting" not in group


async def test_an_assignment_that_is_not_a_consumers_is_told_by_its_size() -> None:
    async with asked() as broker:
        await broker.settle("g", b"not for us")
        group = await broker.ask("describe", "g")
    assert group["members"][0]["assignment"] is None
    assert group["members"][0]["assignment_bytes"] == 10


async def test_a_rebalance_that_hangs_says_whom_it_waits_for_since_when_and_until_when() -> None:
    async with asked() as broker:
        member_id = await broker.settle("g")
        before_ms = broker.groups.host.now().wall_ms
        newcomer = broker.join("g", instance="j")
        await broker.until_there_are("g", 2)
        assert not newcomer.is_done
        group = await broker.ask("describe", "g")
        listed = await broker.ask("list_groups")
        history = await broker.ask("rebalances", "g")
        after_ms = broker.groups.host.now().wall_ms
    waiting = group["waiting"]
    assert waiting["phase"] == "join"
    assert (waiting["member_ids"], waiting["pending_ids"]) == ([member_id], [])
    assert before_ms <= waiting["since_ms"] <= after_ms
    assert before_ms + 59_000 <= waiting["until_ms"] <= after_ms + 61_000
    assert waiting["members"][0]["instance_id"] == "i"
    assert listed["groups"][0]["waiting"]["member_ids"] == [member_id]
    assert history["waiting"]["member_ids"] == [member_id]
    assert history["rebalances"][-1]["outcome"] == "running"
    assert group["last_rebalance"]["outcome"] == "running"


async def test_a_leader_that_does_not_hand_in_an_assignment_is_waited_for() -> None:
    async with asked() as broker:
        joined = await broker.join("g", instance="i")
        waiting = (await broker.ask("describe", "g"))["waiting"]
    assert (waiting["phase"], waiting["member_ids"]) == ("assign", [joined.member_id])


async def test_two_thousand_members_are_shown_while_others_have_their_turns() -> None:
    async with asked(initial_delay_ms=60_000) as broker:
        for number in range(2_000):
            broker.join("g", instance=str(number))
        await broker.until_there_are("g", 2_000)
        group, turns = await turns_of(broker.ask("describe", "g", "limit=10000"))
        some = await broker.ask("describe", "g")
        history, history_turns = await turns_of(broker.ask("rebalances", "g"))
    assert (len(group["members"]), group["members_dropped"]) == (2_000, 0)
    assert turns > 10
    assert len(some["members"]) == group_pages.MEMBERS_DEFAULT
    assert some["member_count"] == len(some["members"]) + some["members_dropped"] == 2_000
    assert history["rebalances"][0]["outcome"] == "running"
    assert history_turns > 5


async def test_records_are_told_oldest_first_with_their_sentence() -> None:
    async with asked() as broker:
        member_id = await broker.settle("g")
        await broker.leave("g", member_id)
        answer = await broker.ask("rebalances", "g")
        newest = await broker.ask("rebalances", "g", "last=1")
    joined, left = answer["rebalances"]
    assert [joined["sequence"], left["sequence"]] == [1, 2]
    assert (answer["state"], answer["total_rebalances"], answer["waiting"]) == ("Empty", 2, None)
    assert left["trigger"]["kind"] == "member_left"
    assert left["sentence"].endswith("the group is empty")
    assert left["members"][0]["fate"] == "left"
    assert newest["rebalances"] == [left]
    # Acts are of more records than are asked for.
    assert [act["kind"] for act in newest["acts"]] == ["start", "scale_in"]
    assert "1 member left" in newest["acts"][-1]["text"]


async def test_avoided_rebalances_can_be_told_apart_or_left_out() -> None:
    async with asked() as broker:
        member_id = await broker.settle("g")
        # The static leader comes back as another process, with the same subscription.
        await broker.join("g", instance="i")
        broker.history.drain()
        every = await broker.ask("rebalances", "g")
        rebalances = await broker.ask("rebalances", "g", "kind=rebalance")
        avoided = await broker.ask("rebalances", "g", "kind=avoided")
        group = await broker.ask("describe", "g")
    assert [record["kind"] for record in every["rebalances"]] == ["rebalance", "avoided"]
    assert rebalances["rebalances"] == every["rebalances"][:1]
    assert avoided["rebalances"] == every["rebalances"][1:]
    assert avoided["rebalances"][0]["sentence"].startswith("did not rebalance")
    assert (every["total_rebalances"], every["total_avoided"]) == (1, 1)
    assert group["last_rebalance"]["sequence"] == 1
    assert group["leader"] != member_id


async def test_the_history_of_a_group_outlives_it() -> None:
    async with asked() as broker:
        await broker.leave("g", await broker.settle("g"))
        await broker.groups.delete_group("g")
        broker.history.drain()
        group = await broker.ask("describe", "g")
        answer = await broker.ask("rebalances", "g")
    assert "does not exist any more" in group["error"]
    assert answer["state"] is None
    assert len(answer["rebalances"]) == 2


@pytest.mark.parametrize("page", ["describe", "rebalances"])
async def test_a_group_that_never_was_is_not_found(page: str) -> None:
    async with asked() as broker:
        assert "no such group" in (await broker.ask(page, "g"))["error"]


async def test_an_answer_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_parts, "ANSWER_BYTES", 1_000)
    monkeypatch.setattr(group_pages, "ANSWER_BYTES", 1_000)
    async with asked(initial_delay_ms=60_000) as broker:
        for number in range(100):
            broker.join("g", instance=f"{number:03} " + "x" * 100)
            await broker.commit(f"group {number:03}")
        await broker.until_there_are("g", 100)
        group = await broker.ask("describe", "g")
        listed = await broker.ask("list_groups")
    assert 0 < len(group["members"]) < 20
    assert group["members_dropped"] == 100 - len(group["members"])
    assert 0 < len(listed["groups"]) < 20
    assert listed["after"] == listed["groups"][-1]["group"]


@pytest.mark.parametrize(
    ("page", "query"),
    [
        ("list_groups", "last=1"),
        ("list_groups", "limit=10001"),
        ("describe", "limit=x"),
        ("describe", "after=a"),
        ("rebalances", "last=0"),
        ("rebalances", "last=1001"),
        ("rebalances", "kind=running"),
    ],
)
async def test_parameters_that_mean_nothing_are_refused(page: str, query: str) -> None:
    async with asked() as broker:
        await broker.commit("g")
        with pytest.raises(BadRequestError):
            await broker.ask(page, "g", query)


async def test_a_group_that_takes_part_in_a_text_of_json_breaks_nothing() -> None:
    name = '","members":[{"a":"'
    async with asked() as broker:
        await broker.settle(name)
        answer = await broker.ask("rebalances", name)
        group = await broker.ask("describe", name)
    assert answer["rebalances"][0]["group"] == group["last_rebalance"]["group"] == name
    assert len(answer["rebalances"][0]["members"]) == 1
