"""Callbacks of commits: in order, each to its end once, and each call with a result of its own."""

import asyncio
import logging

import pytest

from kohort.client.group.callbacks import CommitCallbacks
from tests.support.virtual_time import virtual


class Scene:
    """Callbacks that take a second, and what became of them."""

    def __init__(self) -> None:
        self.callbacks = CommitCallbacks()
        self.begun: list[int] = []
        self.ended: list[int] = []

    def add(self, number: int, error: Exception | None = None) -> None:
        async def callback(*_: object) -> None:
            self.begun.append(number)
            await asyncio.sleep(1)
            self.ended.append(number)
            if error is not None:
                raise error

        self.callbacks.add(callback, {}, None)


@virtual
async def test_a_callback_goes_on_when_who_waits_for_it_is_cancelled() -> None:
    scene = Scene()
    scene.add(1)
    scene.add(2)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await scene.callbacks.run_due()
    await scene.callbacks.run_due()
    assert scene.begun == scene.ended == [1, 2]
    assert not scene.callbacks.are_due


@virtual
async def test_what_a_callback_raises_is_kept_for_a_call_without_a_result_of_its_own() -> None:
    scene = Scene()
    scene.add(1, ZeroDivisionError())
    scene.add(2)
    await scene.callbacks.run_due(keeps_error=True)
    assert scene.ended == [1, 2]
    assert scene.callbacks.are_due
    with pytest.raises(ZeroDivisionError):
        await scene.callbacks.run_due()
    assert not scene.callbacks.are_due


@virtual
async def test_a_plain_function_that_raises_keeps_no_other_from_being_called() -> None:
    scene = Scene()

    def fails(*_: object) -> None:
        raise ZeroDivisionError

    scene.callbacks.add(fails, {}, None)
    scene.add(2)
    with pytest.raises(ZeroDivisionError):
        await scene.callbacks.run_due()
    assert scene.ended == [2]


@virtual
async def test_a_callback_that_commits_does_not_wait_for_itself() -> None:
    scene = Scene()

    async def commits(*_: object) -> None:
        await scene.callbacks.run_due(keeps_error=True)

    scene.callbacks.add(commits, {}, None)
    scene.add(2)
    async with asyncio.timeout(10):
        await scene.callbacks.run_due()
    assert scene.ended == [2]


@virtual
async def test_a_callback_that_hangs_is_cancelled_when_the_consumer_has_to_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    scene = Scene()

    async def hangs(*_: object) -> None:
        await asyncio.Event().wait()

    scene.callbacks.add(hangs, {}, None)
    async with asyncio.timeout(10):
        await scene.callbacks.close(2)
    task = scene.callbacks.task
    assert task is not None
    await asyncio.wait([task])
    assert len(caplog.records) == 1


@virtual
async def test_a_callback_that_is_cancelled_from_within_has_failed() -> None:
    scene = Scene()

    async def waits_for_something_cancelled(*_: object) -> None:
        waiting = asyncio.get_running_loop().create_future()
        waiting.cancel()
        await waiting

    scene.callbacks.add(waits_for_something_cancelled, {}, None)
    with pytest.raises(RuntimeError, match="cancelled from within"):
        await scene.callbacks.run_due()
