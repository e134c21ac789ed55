"""Problems that the console shows first: rebalances that hang, and groups that fall behind."""

import random

import pytest

from kohort.broker.console.lag_history import GROUPS_MAX, SAMPLES_MAX, LagHistory, is_rising
from kohort.broker.console.problems import HANG_MS, NO_MEMBERS
from tests.unit.broker.console.viewed_pages import LookedAt, looked_at


async def fall_behind(broker: LookedAt, group: str) -> None:
    """Records that the group does not read, in samples of its lag."""
    await broker.commit(group, t0=0)
    for _ in range(9):
        broker.produce("t", 0, broker.clock.wall_ms())
        broker.clock.advance(30_000)
        await broker.source.lags.sample(
            broker.source.groups, broker.source.readable, broker.source.clock
        )


async def test_groups_with_problems_come_first_and_are_counted() -> None:
    async with looked_at() as broker:
        await fall_behind(broker, "middle")
        await broker.settle("a-good-one")
        await broker.settle("z-hangs", "old")
        joined = broker.join("z-hangs", "new", instance="other")
        broker.clock.advance(HANG_MS)
        listed = await broker.ask("/api/groups")
        by_name = await broker.ask("/api/groups", "sort=group")
        checks = await broker.ask("/api/checks", "limit=1")
        joined.cancel()
    names = [group["group"] for group in listed["groups"]]
    assert names == ["z-hangs", "middle", "a-good-one"]
    assert [group["group"] for group in by_name["groups"]] == sorted(names)
    hangs, behind, good = listed["groups"]
    assert [problem["check"] for problem in hangs["problems"]] == ["hangs"]
    assert "old-static" in hangs["problems"][0]["text"]
    assert [problem["check"] for problem in behind["problems"]] == ["falls-behind"]
    assert "1 to 9 records within 4 min" in behind["problems"][0]["text"]
    assert behind["problems"][0]["advice"] == NO_MEMBERS
    assert good["problems"] == []
    assert checks["warnings"] == 2
    assert len(checks["groups"]) == 1


async def test_a_member_that_outlives_its_session_is_said_to_send_heartbeats() -> None:
    async with looked_at() as broker:
        await broker.settle("g", "old")
        joined = broker.join("g", "new", instance="other")
        broker.clock.advance(HANG_MS - 1)
        early = await broker.ask("/api/groups/g")
        broker.clock.advance(1)
        at_first = await broker.ask("/api/groups/g")
        # The session timeout is 10 s, the rebalance timeout 60 s; nobody expires it here.
        broker.clock.advance(15_000)
        later = await broker.ask("/api/groups/g")
        joined.cancel()
    assert not any(finding["check"] == "hangs" for finding in early["findings"])
    assert "heartbeats" not in at_first["findings"][0]["text"]
    assert "removed in 0 ms unless it sends a heartbeat" in at_first["findings"][0]["text"]
    assert "still sends heartbeats" in later["findings"][0]["text"]
    assert "or it is finishing records" in later["findings"][0]["text"]
    assert "removed in 35 s" in later["findings"][0]["text"]


async def test_the_lag_of_the_last_hour_is_on_the_groups_page() -> None:
    async with looked_at() as broker:
        await fall_behind(broker, "g")
        shown = await broker.ask("/api/groups/g")
    assert [lag for _, lag in shown["lag_last_hour"]] == list(range(1, 10))
    assert shown["lag_last_hour"][-1][0] == shown["at_ms"]


@pytest.mark.parametrize(
    ("lags", "expected"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8, 9], True),
        # Commits make it go up and down.
        ([900, 100, 500, 1_900, 1_100, 1_500, 2_900, 2_100, 2_500], True),
        ([9, 8, 7, 6, 5, 4, 3, 2, 1], False),
        ([0] * 9, False),
        ([1, 2, 3, 4, 5, 6, 7, 8], False),
        # It catches up.
        ([1, 2, 3, 40, 50, 60, 7, 8, 9], False),
    ],
)
def test_a_lag_rises_if_each_third_is_above_the_one_before(
    lags: list[int], *, expected: bool
) -> None:
    assert is_rising(lags) is expected


def test_noise_is_hardly_ever_taken_for_a_rise() -> None:
    noise = random.Random(1)
    rises = sum(is_rising([noise.randrange(1_000) for _ in range(9)]) for _ in range(2_000))
    assert rises < 10


def test_the_history_is_bounded_in_samples_and_groups_and_forgets_what_is_gone() -> None:
    history = LagHistory()
    for number in range(SAMPLES_MAX + 5):
        history.add({"gone" if number < 3 else "here": 1, "read": int(not number)}, number)
    assert len(history.last_hour("here")) == SAMPLES_MAX
    assert history.last_hour("here")[-1] == (SAMPLES_MAX + 4, 1)
    assert history.last_hour("gone") == []
    assert history.last_hour("read") == []
    history.add({f"g{number}": 1 for number in range(GROUPS_MAX + 10)}, 999)
    assert sum(bool(history.last_hour(f"g{number}")) for number in range(GROUPS_MAX + 10)) == (
        GROUPS_MAX
    )
