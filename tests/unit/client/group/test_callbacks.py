"""Callbacks of the application run to their end once, whichever caller gives up waiting."""

import asyncio
import logging
import time

import pytest

from kohort.client.group.callbacks import Callbacks
from kohort.client.group.listener import Partitions
from tests.support.virtual_time import virtual
from tests.unit.client.scripted_brokers import partition

A, B = partition(0), partition(1)


class Scene:
    """Callbacks that take a second, and what became of them."""

    def __init__(self) -> None:
        self.callbacks = Callbacks(lambda name, error: self.errors.append((name, error)))
        self.errors: list[tuple[str, Exception]] = []
        self.begun: list[str] = []
        self.ended: list[str] = []

    async def call(self, name: str, partitions: Partitions = frozenset({A})) -> None:
        async def method() -> None:
            self.begun.append(name)
            await asyncio.sleep(1)
            self.ended.append(name)

        await self.callbacks.call(name, lambda _: method(), partitions)


@virtual
async def test_a_callback_goes_on_when_who_waits_for_it_is_cancelled() -> None:
    scene = Scene()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await scene.call("on_revoked")
        assert (scene.begun, scene.ended) == (["on_revoked"], [])
    await scene.call("on_revoked")
    assert (scene.begun, scene.ended) == (["on_revoked"], ["on_revoked"])


@virtual
async def test_another_callback_waits_for_the_one_before_it() -> None:
    scene = Scene()
    waiting = asyncio.create_task(scene.call("on_revoked"))
    await asyncio.sleep(0.1)
    waiting.cancel()
    await scene.call("on_lost", {B})
    assert scene.ended == ["on_revoked", "on_lost"]
    assert scene.callbacks.given_up == {A, B}


@virtual
async def test_what_a_callback_raises_is_told_although_no_one_waits_for_it() -> None:
    scene = Scene()

    async def fails() -> None:
        await asyncio.sleep(1)
        raise ZeroDivisionError

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await scene.callbacks.call("on_assigned", lambda _: fails(), {A})
    await scene.callbacks.wait_over()
    assert [(name, type(error)) for name, error in scene.errors] == [
        ("on_assigned", ZeroDivisionError)
    ]
    # Partitions that are assigned are not given up.
    assert scene.callbacks.given_up == frozenset()


@virtual
async def test_a_callback_that_hangs_is_named_and_cancelled_when_the_consumer_has_to_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    scene = Scene()
    loop = asyncio.get_running_loop()

    async def hangs() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            # As code does that catches too much.
            await asyncio.sleep(1_000)

    waiting = asyncio.create_task(scene.callbacks.call("on_revoked", lambda _: hangs(), {A}))
    await asyncio.sleep(0.1)
    began_s = loop.time()
    scene.callbacks.end_by(time.monotonic() + 2)
    await waiting
    assert loop.time() - began_s == pytest.approx(2, abs=0.2)
    assert [one.getMessage().partition(" ")[0] for one in caplog.records] == ["on_revoked"]


@virtual
async def test_after_a_rebalance_the_next_one_is_told_again() -> None:
    scene = Scene()
    await scene.call("on_assigned")
    await scene.call("on_assigned")
    scene.callbacks.begin()
    await scene.call("on_assigned")
    assert scene.ended == ["on_assigned"] * 2


@virtual
async def test_a_callback_that_is_told_when_the_time_is_over_is_not_left_running(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    scene = Scene()
    scene.callbacks.end_by(time.monotonic())
    await asyncio.sleep(1)
    await scene.call("on_revoked")
    await asyncio.sleep(10)
    assert (scene.begun, scene.ended) == (["on_revoked"], [])
    assert scene.callbacks.task is None
    assert [one.getMessage().partition(" ")[0] for one in caplog.records] == ["on_revoked"]


@virtual
async def test_a_callback_that_is_cancelled_from_within_has_failed() -> None:
    scene = Scene()

    async def waits_for_something_cancelled() -> None:
        waiting = asyncio.get_running_loop().create_future()
        waiting.cancel()
        await waiting

    await scene.callbacks.call("on_revoked", lambda _: waits_for_something_cancelled(), {A})
    [(name, error)] = scene.errors
    assert name == "on_revoked"
    assert isinstance(error.__cause__, asyncio.CancelledError)
