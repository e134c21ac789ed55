import asyncio

import pytest

from kohort.broker.coordinator.ticket import Ticket
from kohort.broker.runtime.promise import Promise
from kohort.protocol.errors import ErrorCode, KafkaError


def twice(number: int) -> int:
    return 2 * number


async def test_an_answer_that_is_there_already_costs_no_future() -> None:
    ticket: Ticket[int] = Ticket()
    ticket.answer(21)
    assert ticket.then(twice) == 42


async def test_an_answer_that_comes_later_completes_the_future() -> None:
    ticket: Ticket[int] = Ticket()
    response = ticket.then(twice)
    assert isinstance(response, Promise)
    ticket.answer(21)
    assert await response == 42


async def test_none_is_an_answer() -> None:
    ticket: Ticket[None] = Ticket()
    ticket.answer(None)
    assert ticket.then(lambda answer: (answer,)) == (None,)


async def test_a_failure_is_raised_now_or_later() -> None:
    error = KafkaError(ErrorCode.NOT_COORDINATOR)
    ticket: Ticket[int] = Ticket()
    ticket.fail(error)
    with pytest.raises(KafkaError):
        ticket.then(twice)
    ticket = Ticket()
    response = ticket.then(twice)
    assert isinstance(response, Promise)
    ticket.fail(error)
    with pytest.raises(KafkaError):
        await response


async def test_a_client_that_is_gone_does_not_disturb() -> None:
    for fails in (False, True):
        ticket: Ticket[int] = Ticket()
        response = ticket.then(twice)
        assert isinstance(response, Promise)
        response.cancel()
        if fails:
            ticket.fail(KafkaError(ErrorCode.NOT_COORDINATOR))
        else:
            ticket.answer(21)
        assert ticket.is_answered
        assert response.cancelled()


async def test_a_response_that_cannot_be_made_fails_its_own_request() -> None:
    ticket: Ticket[int] = Ticket()
    response = ticket.then(lambda number: number // 0)
    assert isinstance(response, Promise)
    ticket.answer(1)
    with pytest.raises(ZeroDivisionError):
        await response


async def test_two_answers_are_a_mistake_of_ours() -> None:
    ticket: Ticket[int] = Ticket()
    ticket.answer(1)
    with pytest.raises(AssertionError):
        ticket.answer(1)
    with pytest.raises(AssertionError):
        ticket.fail(KafkaError(ErrorCode.NOT_COORDINATOR))


async def test_waiting_is_the_same_without_a_response() -> None:
    ticket: Ticket[int] = Ticket()
    ticket.answer(1)
    assert await ticket.wait() == 1
    ticket = Ticket()
    waiting = asyncio.ensure_future(ticket.wait())
    await asyncio.sleep(0)
    ticket.answer(2)
    assert await waiting == 2
