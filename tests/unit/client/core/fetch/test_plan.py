from collections.abc import Callable, Collection

import pytest

from kohort.client.core.fetch.plan import LEFTOVER_MS, FetchLimits, FetchPlan, Plan
from kohort.client.core.partitions import TopicPartition

A, B, C, D = (TopicPartition("t", index) for index in range(4))
LIMITS = FetchLimits(answer_bytes=1_000, partition_bytes=100, prefetch_bytes=1_000)
ENOUGH = 100


def plan_of(*partitions: TopicPartition, limits: FetchLimits = LIMITS) -> FetchPlan:
    plan = FetchPlan(limits)
    plan.set_partitions(partitions)
    return plan


def ask(
    plan: FetchPlan,
    now_ms: int = 0,
    *,
    leader_of: Callable[[TopicPartition], int | None] = lambda _: 1,
    unreadable: Collection[TopicPartition] = (),
) -> Plan:
    """What to send, and it is sent."""
    found = plan.next(now_ms, leader_of, lambda one: one not in unreadable)
    for fetch in found.fetches:
        plan.sent(fetch.node_id, now_ms)
    return found


def asked_for(found: Plan) -> list[TopicPartition]:
    return [partition for fetch in found.fetches for partition in fetch.partitions]


def test_a_partition_of_which_enough_waits_is_left_out_until_it_is_taken() -> None:
    plan = plan_of(A)
    plan.set_waiting(A, ENOUGH)
    assert asked_for(ask(plan)) == []
    assert plan.set_waiting(A, ENOUGH - 1)
    assert asked_for(ask(plan)) == [A]


@pytest.mark.parametrize(
    ("before", "after", "is_wanted_again"),
    [(130, 110, False), (130, 99, True), (99, 90, False), (99, 0, True), (0, 0, False)],
)
def test_taking_says_when_a_partition_is_wanted_again(
    before: int, after: int, is_wanted_again: bool
) -> None:
    plan = plan_of(A)
    plan.set_waiting(A, before)
    assert plan.set_waiting(A, after) == is_wanted_again


def test_a_partition_is_asked_for_while_the_answer_before_is_taken() -> None:
    plan = plan_of(A, limits=FetchLimits(1_000, 100, 150))
    plan.set_waiting(A, 75)
    assert asked_for(ask(plan)) == []
    assert plan.set_waiting(A, 74)
    (fetch,) = ask(plan).fetches
    assert fetch.bytes_max == 76


def test_what_was_served_comes_last_in_the_next_request() -> None:
    plan = plan_of(A, B, C)
    ask(plan)
    plan.served(A)
    plan.served(C)
    plan.answered(1)
    assert asked_for(ask(plan)) == [B, A, C]


def test_new_partitions_come_behind_those_that_stay_and_gone_ones_are_forgotten() -> None:
    plan = plan_of(A, B, C)
    plan.set_waiting(B, 70)
    plan.served(A)
    plan.set_partitions([D, A, C])
    assert plan.waiting_bytes == 0
    assert asked_for(ask(plan)) == [C, A, D]


def test_what_failed_is_asked_for_at_once_when_somebody_else_leads_it() -> None:
    plan = plan_of(A)
    plan.postpone(A, 1, 300)
    assert asked_for(ask(plan, 0)) == []
    assert asked_for(ask(plan, 0, leader_of=lambda _: 2)) == [A]


def test_every_broker_has_the_same_share_so_that_none_keeps_others_from_being_read() -> None:
    plan = plan_of(A, B, C, D, limits=FetchLimits(1_000, 200, 1_000))
    plan.set_waiting(A, 99)
    plan.set_waiting(C, 99)
    found = ask(plan, leader_of=lambda one: one.partition % 2)
    assert {fetch.node_id: fetch.bytes_max for fetch in found.fetches} == {0: 302, 1: 500}


def test_nothing_is_asked_for_while_the_share_is_full_of_what_will_be_taken() -> None:
    plan = plan_of(A, B, limits=FetchLimits(1_000, 1_000, 1_000))
    plan.set_waiting(A, 499)
    plan.set_waiting(B, 499)
    found = ask(plan)
    assert (asked_for(found), found.wake_ms) == ([], None)
    plan.set_waiting(A, 0)
    assert asked_for(ask(plan)) == [A, B]


def test_paused_partitions_that_fill_the_share_do_not_keep_others_from_being_read() -> None:
    plan = plan_of(A, B, limits=FetchLimits(1_000, 200, 1_000))
    plan.set_waiting(A, 5_000)
    (fetch,) = ask(plan, unreadable=[A]).fetches
    assert (fetch.partitions, fetch.bytes_max) == ([B], 100)


def test_a_request_for_the_rest_alone_waits_for_a_neighbour_that_is_being_taken() -> None:
    plan = plan_of(A, B)
    ask(plan, 1_000)
    plan.answered(1)
    plan.set_waiting(A, ENOUGH)
    found = ask(plan, 1_001)
    assert (asked_for(found), found.wake_ms) == ([], 1_000 + LEFTOVER_MS)
    plan.set_waiting(A, 0)
    (fetch,) = ask(plan, 1_002).fetches
    assert (fetch.partitions, fetch.may_wait) == ([A, B], True)


def test_it_is_sent_in_the_end_and_then_the_broker_must_not_hold_it_back() -> None:
    plan = plan_of(A, B)
    ask(plan, 1_000)
    plan.answered(1)
    plan.set_waiting(A, ENOUGH)
    (fetch,) = ask(plan, 1_000 + LEFTOVER_MS).fetches
    assert (fetch.partitions, fetch.may_wait) == ([B], False)


def test_a_broker_that_was_never_asked_need_not_wait_for_a_neighbour() -> None:
    plan = plan_of(A, B)
    plan.set_waiting(A, ENOUGH)
    assert asked_for(ask(plan, 0)) == [B]


def test_a_broker_that_throttles_is_left_alone() -> None:
    plan = plan_of(A, B)
    plan.throttle(1, 700)
    found = ask(plan, 0, leader_of=lambda one: one.partition)
    assert (asked_for(found), found.wake_ms) == ([A], 700)
    assert asked_for(ask(plan, 700, leader_of=lambda one: one.partition)) == [B]


def test_limits_of_next_to_nothing_still_get_on() -> None:
    plan = plan_of(A, B, limits=FetchLimits(1, 1, 1))
    (fetch,) = ask(plan).fetches
    assert (fetch.partitions, fetch.bytes_max) == ([A, B], 1)
