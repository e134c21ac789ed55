import asyncio

import pytest

from kohort.broker.runtime.promise import Promise


async def test_who_waits_is_told_before_the_keeper_goes_on() -> None:
    promise: Promise[int] = Promise()
    told: list[int] = []
    promise.add_done_callback(lambda kept: told.append(kept.result()))
    promise.add_done_callback(lambda kept: told.append(-kept.result()))
    promise.set_result(7)
    assert told == [7, -7]
    promise.add_done_callback(lambda kept: told.append(kept.result() + 1))
    assert told == [7, -7, 8]


async def test_a_broken_one_raises_what_it_was_broken_with() -> None:
    promise: Promise[int] = Promise()
    error = KeyError("gone")
    promise.set_exception(error)
    assert promise.exception() is error
    assert not promise.cancelled()
    with pytest.raises(KeyError):
        promise.result()


async def test_a_cancelled_one_tells_too_and_once() -> None:
    promise: Promise[int] = Promise()
    told: list[bool] = []
    promise.add_done_callback(lambda kept: told.append(kept.cancelled()))
    assert promise.cancel()
    assert not promise.cancel()
    assert told == [True]
    with pytest.raises(asyncio.CancelledError):
        promise.result()


async def test_it_is_done_once() -> None:
    promise: Promise[int] = Promise()
    promise.set_result(1)
    with pytest.raises(AssertionError):
        promise.set_result(2)
    with pytest.raises(AssertionError):
        promise.set_exception(KeyError())
    assert promise.result() == 1


@pytest.mark.parametrize("is_kept_before", [True, False])
async def test_a_task_can_wait_for_it(is_kept_before: bool) -> None:
    promise: Promise[int] = Promise()
    if is_kept_before:
        promise.set_result(3)

    async def wait() -> int:
        return await promise

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    if not is_kept_before:
        assert not task.done()
        promise.set_result(3)
    assert await task == 3


async def test_a_task_that_is_cancelled_cancels_what_it_waits_for() -> None:
    promise: Promise[int] = Promise()
    told: list[bool] = []
    promise.add_done_callback(lambda it: told.append(it.cancelled()))

    async def wait() -> int:
        return await promise

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert told == [True]
