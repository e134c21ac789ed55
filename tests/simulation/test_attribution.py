"""Causes of rebalances: the simulation knows them, as it made them; the history must name them."""

import time

import pytest

from tests.simulation.campaign import CONSUMERS, Tally, attribution, describe, live_many

REBALANCES_SHORT, REBALANCES_LONG = 500, 10_000
REBALANCES_OF_A_WORLD_MIN = 100
CRAMPED_SHORT, CRAMPED_LONG = 3, 6
CONSUMERS_SHORT, CONSUMERS_LONG = 1, 40
"""Worlds of 500 causes."""


@pytest.mark.timeout(1800)
def test_each_rebalance_has_one_record_with_its_true_cause(
    capsys: pytest.CaptureFixture[str], long_form: bool
) -> None:
    begun_s, total = time.monotonic(), Tally()
    wanted = REBALANCES_LONG if long_form else REBALANCES_SHORT
    for tally in live_many("calm.test", "calm", wanted // REBALANCES_OF_A_WORLD_MIN):
        total.add(tally)
        if total.recorded >= wanted:
            break
    with capsys.disabled():
        print(f"\n{describe(total, begun_s)}\n{attribution(total)}")

    assert total.recorded >= wanted
    assert total.misses == 0
    assert total.recorded + total.unfinished + total.killed == total.rebalances.total()
    # Nothing that can begin a rebalance was left out.
    assert {
        "member_added",
        "static_added",
        "static_replaced",
        "protocols_changed",
        "leader_rejoined",
        "forced_by_reason",
        "member_left",
        "removed_by_admin",
        "session_expired",
        "sync_expired",
    } <= set(total.rebalances)


@pytest.mark.timeout(1800)
def test_so_it_has_where_members_are_too_many_and_the_disk_is_full(
    capsys: pytest.CaptureFixture[str], long_form: bool
) -> None:
    """What is not stored is as if it had not been, and who is turned away is named."""
    begun_s, total = time.monotonic(), Tally()
    worlds = CRAMPED_LONG if long_form else CRAMPED_SHORT
    for tally in live_many("cramped.test", "cramped", worlds):
        total.add(tally)
    with capsys.disabled():
        print(f"\n{describe(total, begun_s)}\n{attribution(total)}")

    assert total.misses == 0
    assert total.recorded + total.unfinished + total.killed == total.rebalances.total()
    assert total.rebalances["store_failed"] > 15 * worlds
    assert total.rebalances["over_capacity"] > worlds
    # Only while joins are collected there can be more members than places.
    assert total.further["size_refused"] > 3 * worlds


@pytest.mark.timeout(1800)
def test_each_cause_in_a_consumer_group_is_named_once(
    capsys: pytest.CaptureFixture[str], long_form: bool
) -> None:
    """So many causes lead from one generation to the next as there are generations."""
    begun_s, total = time.monotonic(), Tally()
    worlds = CONSUMERS_LONG if long_form else CONSUMERS_SHORT
    for tally in live_many("consumers.test", CONSUMERS, worlds):
        total.add(tally)
    with capsys.disabled():
        print(f"\n{describe(total, begun_s)}\n{attribution(total)}")

    assert total.misses <= total.recorded * 0.001
    assert {
        "member_added",
        "static_added",
        "static_replaced",
        "subscription_changed",
        "regex_resolved",
        "assignor_changed",
        "topics_changed",
        "forced_by_reason",
        "member_left",
        "removed_by_admin",
        "session_expired",
        "rebalance_expired",
        "sync_expired",
        "join_expired",
        "upgraded",
        "downgraded",
    } == set(total.rebalances)
