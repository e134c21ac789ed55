"""The lists of groups and topics: what they show, how they are filtered, sorted and cut."""

import pytest

from kohort.broker.console import survey
from tests.unit.broker.console.viewed_pages import looked_at

HOUR_MS = 3_600_000


async def test_a_group_is_shown_with_its_lag_in_records_and_in_exact_time() -> None:
    async with looked_at() as broker:
        now_ms = broker.clock.wall_ms()
        broker.produce("t", 0, now_ms - 9_000, now_ms - 4_000, now_ms - 1_000)
        broker.produce("t", 1, now_ms - 60_000)
        await broker.commit("g", t0=1, t1=1)
        told = await broker.ask("/api/groups")
    (group,) = told["groups"]
    assert (told["total"], told["found"], told["pages"]) == (1, 1, 1)
    assert (group["group"], group["state"], group["members"]) == ("g", "Empty", 0)
    assert group["lag"] == 2
    # The second record of the batch is the first that was not read.
    assert group["lag_ms"] == 4_000
    assert group["lag_ms_is_least"] is False


async def test_a_group_that_has_read_all_is_not_behind_and_one_without_a_position_is_unknown() -> (
    None
):
    async with looked_at() as broker:
        broker.produce("t", 0, broker.clock.wall_ms() - 5_000)
        await broker.commit("done", t0=1)
        await broker.settle("new")
        done, new = (await broker.ask("/api/groups"))["groups"]
    assert (done["lag"], done["lag_ms"]) == (0, 0)
    assert (new["lag"], new["lag_ms"]) == (None, None)


async def test_of_many_partitions_the_most_behind_are_looked_up_and_that_is_said() -> None:
    async with looked_at() as broker:
        await broker.topics.changes.create_topic("u", partition_count=20)
        now_ms = broker.clock.wall_ms()
        for index in range(20):
            broker.produce("u", index, *[now_ms - 1_000 * (index + 1)] * (index + 1))
        await broker.commit("g", **{f"u{index}": 0 for index in range(20)})
        (group,) = (await broker.ask("/api/groups"))["groups"]
    assert group["lag"] == sum(range(1, 21))
    assert group["lag_ms"] == 20_000
    assert group["lag_ms_is_least"] is True


async def test_rebalances_of_the_last_hour_and_the_last_cause_are_shown() -> None:
    async with looked_at() as broker:
        member_id = await broker.settle("g")
        broker.clock.advance(HOUR_MS // 2)
        await broker.leave("g", member_id)
        (group,) = (await broker.ask("/api/groups"))["groups"]
        broker.clock.advance(HOUR_MS + 1)
        (later,) = (await broker.ask("/api/groups"))["groups"]
    assert sum(group["last_hour"]) == 2
    assert (group["last_hour"][5], group["last_hour"][6], group["last_hour"][11]) == (0, 1, 1)
    assert group["last"]["cause"] == "member_left"
    assert group["last"]["sequence"] == 2
    assert group["last"]["text"].startswith(f"member {member_id} ")
    assert sum(later["last_hour"]) == 0
    assert later["last"] == group["last"]


async def test_a_group_that_rebalances_says_whom_it_waits_for_and_since_when() -> None:
    async with looked_at() as broker:
        member_id = await broker.settle("g", "old")
        broker.clock.advance(5_000)
        joined = broker.join("g", "new", instance="other")
        (group,) = (await broker.ask("/api/groups", "state=waiting"))["groups"]
        joined.cancel()
    waiting = group["waiting"]
    assert waiting["phase"] == "join"
    assert waiting["since_ms"] == broker.clock.wall_ms()
    assert [one["member_id"] for one in waiting["members"]] == [member_id]
    assert waiting["text"].endswith("to join again")


@pytest.mark.parametrize("together", [1, 7, 1_000])
async def test_groups_are_filtered_sorted_and_cut_into_pages(
    together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "SORTED_TOGETHER", together)
    async with looked_at() as broker:
        for number in range(250):
            await broker.commit(f"group-{number:03}", t0=0)
        await broker.settle("stable", "c", 0)
        first = await broker.ask("/api/groups")
        last = await broker.ask("/api/groups", "page=3&sort=-group")
        some = await broker.ask("/api/groups", "filter=GROUP-01")
        stable = await broker.ask("/api/groups", "state=Stable&sort=-members")
        none = await broker.ask("/api/groups", "filter=nobody&page=7")
    assert [one["group"] for one in first["groups"]] == [f"group-{one:03}" for one in range(100)]
    assert (first["total"], first["pages"]) == (251, 3)
    assert [one["group"] for one in last["groups"]] == [
        f"group-{one:03}" for one in range(50, -1, -1)
    ]
    assert some["found"] == 10
    assert [one["group"] for one in stable["groups"]] == ["stable"]
    assert (none["found"], none["groups"], none["pages"]) == (0, [], 1)


async def test_a_topic_names_the_groups_that_read_it() -> None:
    async with looked_at() as broker:
        now_ms = broker.clock.wall_ms()
        broker.produce("t", 2, now_ms - 3_000, now_ms - 2_000)
        await broker.commit("behind", t2=1)
        await broker.settle("subscribed")
        await broker.commit("elsewhere", u0=1)
        (listed,) = (await broker.ask("/api/topics"))["topics"]
        topic = await broker.ask("/api/topics/t")
        missing = await broker.ask("/api/topics/u")
    assert (listed["topic"], listed["partition_count"], listed["offsets"]) == ("t", 3, 2)
    assert (listed["groups"], listed["group_count"]) == (["behind", "subscribed"], 2)
    behind, subscribed = topic["groups"]
    assert (behind["lag"], behind["lag_ms"]) == (1, 2_000)
    assert (subscribed["state"], subscribed["lag"]) == ("Stable", None)
    assert [one["end"] for one in topic["partitions"]] == [0, 0, 2]
    assert missing == {"error": "no such topic"}
