import asyncio
import logging

import pytest

from kohort.broker.runtime.deferred import Deferred, Tasks


def twice(number: int) -> int:
    return 2 * number


async def test_who_waits_is_told_before_the_giver_goes_on() -> None:
    later: Deferred[int] = Deferred()
    told: list[int] = []
    later.add_done_callback(lambda given: told.append(given.result()))
    later.add_done_callback(lambda given: told.append(-given.result()))
    later.set_result(7)
    assert told == [7, -7]
    later.add_done_callback(lambda given: told.append(given.result() + 1))
    assert told == [7, -7, 8]


async def test_a_cancelled_one_tells_too_and_once() -> None:
    later: Deferred[int] = Deferred()
    told: list[bool] = []
    later.add_done_callback(lambda given: told.append(given.is_cancelled))
    assert later.cancel()
    assert not later.cancel()
    assert told == [True]
    with pytest.raises(asyncio.CancelledError):
        later.result()


async def test_what_cannot_be_made_fails_for_itself_where_the_value_is_waited_for() -> None:
    later: Deferred[int] = Deferred()
    later.add_done_callback(lambda _: None)
    made = later.map(lambda number: number // 0)
    assert isinstance(made, Deferred)
    later.set_result(1)
    assert later.result() == 1
    with pytest.raises(ZeroDivisionError):
        made.result()


async def test_to_cancel_what_is_made_leaves_a_value_alone_that_is_waited_for() -> None:
    later: Deferred[int] = Deferred()
    later.add_done_callback(lambda _: None)
    made = later.map(twice)
    assert isinstance(made, Deferred)
    made.cancel()
    assert not later.is_done
    later.set_result(21)
    assert later.result() == 21
    assert made.is_cancelled


async def test_to_cancel_what_is_made_cancels_a_value_that_nothing_else_waits_for() -> None:
    later: Deferred[int] = Deferred()
    made = later.map(twice)
    assert isinstance(made, Deferred)
    made.cancel()
    assert later.is_cancelled
    later.set_result(21)
    assert made.is_cancelled


async def test_a_value_that_nothing_else_waits_for_turns_into_what_is_made_of_it() -> None:
    later: Deferred[int] = Deferred()
    assert later.map(twice) is later
    told: list[int] = []
    later.add_done_callback(lambda given: told.append(given.result()))
    later.set_result(21)
    assert told == [42]
    assert later.map(twice) == 84


async def test_it_fails_by_what_cannot_be_made_and_by_its_own_failure() -> None:
    unmade, failed = Deferred[int](), Deferred[int]()
    for later in (unmade, failed):
        later.map(lambda number: number // 0)
    unmade.set_result(1)
    failed.set_exception(KeyError())
    with pytest.raises(ZeroDivisionError):
        unmade.result()
    with pytest.raises(KeyError):
        failed.result()


async def test_an_end_of_any_kind_can_be_made_into_something() -> None:
    given, failed, cancelled = Deferred[int](), Deferred[int](), Deferred[int]()
    ends = [
        one.finally_(lambda end: (end.error is None, end.is_cancelled))
        for one in (given, failed, cancelled)
    ]
    given.set_result(1)
    failed.set_exception(KeyError())
    cancelled.cancel()
    assert [end.result() for end in ends] == [(True, False), (False, False), (False, True)]


@pytest.mark.parametrize("is_given_before", [True, False])
async def test_a_task_can_wait_for_it(is_given_before: bool) -> None:
    later: Deferred[int] = Deferred()
    if is_given_before:
        later.set_result(3)

    async def wait() -> int:
        return await later

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    if not is_given_before:
        assert not task.done()
        later.set_result(3)
    assert await task == 3


async def test_a_coroutine_is_a_task_for_as_long_as_somebody_waits() -> None:
    tasks: Tasks = set()

    async def work(ends: bool) -> int:
        await asyncio.sleep(0 if ends else 1_000)
        return 5

    ended = Deferred.from_coroutine(work(ends=True), tasks, name="work")
    endless = Deferred.from_coroutine(work(ends=False), tasks, name="work")
    assert len(tasks) == 2
    assert await ended == 5
    endless.cancel()
    await asyncio.wait(list(tasks))
    await asyncio.sleep(0)
    assert not tasks


async def test_a_coroutine_that_raises_fails_even_where_no_one_waits_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tasks: Tasks = set()

    async def work() -> int:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            raise RuntimeError("too late") from None
        return 0

    async def failing() -> int:
        raise KeyError

    with pytest.raises(KeyError):
        await Deferred.from_coroutine(failing(), tasks, name="failing")
    stubborn = Deferred.from_coroutine(work(), tasks, name="stubborn")
    await asyncio.sleep(0)
    with caplog.at_level(logging.INFO):
        stubborn.cancel()
        await asyncio.wait(list(tasks))
        await asyncio.sleep(0)
    assert (
        "stubborn failed after its result had been cancelled: RuntimeError('too late')"
        in caplog.text
    )
