"""Answers are given in order and exactly once, so many in a turn of the loop."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from kohort.broker.coordinator.answers import AnswerQueue
from kohort.broker.coordinator.host import ANSWERS_MAX, ANSWERS_MS
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.runtime.slices import RoundRobin
from kohort.groups.effects import Reply
from kohort.protocol.errors import ErrorCode, KafkaError
from kohort.testing.virtual_clock import VirtualClock
from tests.support.waiting import next_slice


def new_turns(clock: VirtualClock | None = None) -> RoundRobin:
    return RoundRobin(clock or VirtualClock(), ANSWERS_MS, ANSWERS_MAX)


class Clients:
    """Clients that wait for answers, and the order in which the answers came."""

    def __init__(self, count: int, turns: RoundRobin | None = None) -> None:
        self.tickets = [Deferred[int]() for _ in range(count)]
        self.waiting: dict[Deferred[Any], None] = dict.fromkeys(self.tickets)
        self.queue = AnswerQueue(self.waiting, turns or new_turns())

    def replies(self) -> Iterator[Reply]:
        return (Reply(ticket, number) for number, ticket in enumerate(self.tickets))

    def give_all(self) -> None:
        self.queue.give_all(self.replies(), len(self.tickets))

    @property
    def answered_count(self) -> int:
        return sum(ticket.is_done for ticket in self.tickets)


async def test_a_few_answers_are_given_at_once() -> None:
    clients = Clients(ANSWERS_MAX - 1)
    clients.give_all()
    assert clients.answered_count == ANSWERS_MAX - 1
    assert not clients.waiting


async def test_others_have_a_turn_between_two_slices_of_many() -> None:
    clients = Clients(5 * ANSWERS_MAX)
    clients.give_all()
    seen = []
    while clients.answered_count < len(clients.tickets):
        seen.append(clients.answered_count)
        await next_slice()
    assert seen == [ANSWERS_MAX * turn for turn in range(5)], "none in the turn of the step"
    assert not clients.waiting


async def test_a_fault_in_one_answer_costs_that_one_and_none_behind_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clients = Clients(2 * ANSWERS_MAX)
    clients.tickets[3].set_result(0)
    clients.give_all()
    later = Clients(1)
    clients.queue.give_all(later.replies(), 1)
    for _ in range(5):
        await asyncio.sleep(0)
    assert "set twice" in caplog.text
    assert later.answered_count == 1
    assert clients.answered_count == len(clients.tickets)
    assert not clients.queue.has_more


async def test_no_turn_gives_more_than_that_to_all_groups_together() -> None:
    turns = new_turns()
    groups = [Clients(2 * ANSWERS_MAX, turns) for _ in range(5)]
    for one in groups:
        one.give_all()
    seen = [0]
    while seen[-1] < 10 * ANSWERS_MAX:
        await next_slice()
        seen.append(sum(one.answered_count for one in groups))
    assert seen == [ANSWERS_MAX * turn for turn in range(11)]
    for _ in groups:
        await next_slice()
    assert not any(one.queue.has_more for one in groups)
    again = Clients(2 * ANSWERS_MAX, turns)
    again.give_all()
    await asyncio.sleep(0)
    assert again.answered_count == ANSWERS_MAX, "the queue has stopped"


async def test_many_more_queue_behind_but_a_single_one_is_answered_at_once() -> None:
    clients = Clients(2 * ANSWERS_MAX)
    clients.give_all()
    await asyncio.sleep(0)
    late: Deferred[str] = Deferred()
    clients.queue.give(Reply(late, "late"))
    later = Clients(1)
    clients.queue.give_all(later.replies(), 1)
    assert (late.is_done, later.answered_count) == (True, 0)
    await next_slice()
    assert clients.answered_count == 2 * ANSWERS_MAX
    await next_slice()
    assert later.answered_count == 1


async def test_an_end_gives_what_is_left_nothing_twice_and_the_others_an_error() -> None:
    clients = Clients(3 * ANSWERS_MAX)
    clients.give_all()
    unanswered: Deferred[int] = Deferred()
    clients.waiting[unanswered] = None
    clients.queue.fail_all(KafkaError(ErrorCode.NOT_COORDINATOR))
    assert clients.answered_count == len(clients.tickets)
    assert [await ticket for ticket in clients.tickets] == list(range(3 * ANSWERS_MAX))
    with pytest.raises(KafkaError, match="NOT_COORDINATOR"):
        await unanswered
    assert not clients.waiting
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    late: Deferred[str] = Deferred()
    clients.queue.give(Reply(late, "late"))
    assert late.is_done


async def test_an_answer_that_takes_long_has_a_turn_of_its_own() -> None:
    clock = VirtualClock()
    clients = Clients(ANSWERS_MAX, new_turns(clock))
    # The leader's names thousands of members.
    clients.tickets[0].map(lambda _: clock.advance(ANSWERS_MS))
    clients.give_all()
    assert clients.answered_count == 1
    await asyncio.sleep(0)
    assert clients.answered_count == len(clients.tickets)
