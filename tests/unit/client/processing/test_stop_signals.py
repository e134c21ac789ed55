"""Signals that end runs, and the handlers that the application had before."""

import asyncio
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from functools import partial
from types import FrameType
from typing import Any

import pytest
import uvloop

from kohort import Consumer
from kohort.client.core.errors import ConfigError
from kohort.client.processing.run_controller import StopSignals
from kohort.testing import VirtualKafka

NUMBER = signal.SIGUSR1
OTHER = signal.SIGUSR2
TIMEOUT_S = 60

NewLoop = Callable[[], asyncio.AbstractEventLoop]
LOOPS = pytest.mark.parametrize(
    "new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)


class Own:
    """The application's handler."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1


@pytest.fixture
def own() -> Iterator[Own]:
    handler = Own()
    before = {number: signal.signal(number, handler) for number in (NUMBER, OTHER)}
    yield handler
    for number, earlier in before.items():
        signal.signal(number, earlier)


def play(new_loop: NewLoop, test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(test)


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not holds():  # noqa: ASYNC110 - the signal wakes the loop by itself.
            await asyncio.sleep(0.001)


@LOOPS
def test_the_first_signal_ends_all_runs_and_the_second_has_its_usual_effect(
    own: Own, new_loop: NewLoop
) -> None:
    async def test() -> None:
        signals, ended = StopSignals(), list[str]()
        with (
            signals.ending([NUMBER, OTHER], lambda: ended.append("a")),
            signals.ending([NUMBER], lambda: ended.append("b")),
        ):
            signal.raise_signal(NUMBER)
            await until(lambda: len(ended) == 2)
            assert sorted(ended) == ["a", "b"]
            assert own.count == 0
            signal.raise_signal(NUMBER)
            signal.raise_signal(OTHER)
            assert own.count == 2
        assert sorted(ended) == ["a", "b"]

    play(new_loop, test())


@LOOPS
def test_a_second_signal_has_its_usual_effect_while_the_loop_is_blocked(
    own: Own, new_loop: NewLoop
) -> None:
    async def test() -> None:
        ended: list[str] = []
        with StopSignals().ending([NUMBER], lambda: ended.append("a")):
            signal.raise_signal(NUMBER)
            signal.raise_signal(NUMBER)
            assert (ended, own.count) == ([], 1)
            await until(lambda: ended)

    play(new_loop, test())


@pytest.mark.parametrize("order", [*itertools.permutations(range(3))], ids=str)
async def test_the_previous_handler_is_restored_in_whatever_order_runs_end(
    own: Own, order: tuple[int, ...]
) -> None:
    signals, ended = StopSignals(), list[int]()
    contexts = [ExitStack() for _ in order]
    for index, context in enumerate(contexts):
        context.enter_context(signals.ending([NUMBER], partial(ended.append, index)))
    *first, last = order
    for index in first:
        contexts[index].close()
        assert signal.getsignal(NUMBER) is not own
    signal.raise_signal(NUMBER)
    await until(lambda: ended)
    contexts[last].close()
    assert ended == [last]
    assert signal.getsignal(NUMBER) is own


async def test_a_run_that_begins_while_another_drains_gets_the_next_signal(own: Own) -> None:
    signals, ended = StopSignals(), list[str]()
    with signals.ending([NUMBER], lambda: ended.append("a")):
        signal.raise_signal(NUMBER)
        await until(lambda: ended)
        with signals.ending([NUMBER], lambda: ended.append("b")):
            signal.raise_signal(NUMBER)
            await until(lambda: len(ended) == 2)
    assert (ended, own.count) == (["a", "b"], 0)
    assert signal.getsignal(NUMBER) is own


@LOOPS
@pytest.mark.parametrize("is_signalled", [True, False])
def test_a_callback_of_the_loop_stays(new_loop: NewLoop, *, is_signalled: bool) -> None:
    async def test() -> None:
        loop, called, ended = asyncio.get_running_loop(), list[str](), list[str]()
        loop.add_signal_handler(NUMBER, called.append, "own")
        with StopSignals().ending([NUMBER], lambda: ended.append("a")):
            if is_signalled:
                signal.raise_signal(NUMBER)
                await until(lambda: ended and called)
        called.clear()
        signal.raise_signal(NUMBER)
        await until(lambda: called)
        assert called == ["own"]
        assert loop.remove_signal_handler(NUMBER)

    play(new_loop, test())


@LOOPS
def test_ctrl_c_cancels_the_main_task_again_after_the_run(
    new_loop: NewLoop, request: pytest.FixtureRequest
) -> None:
    # Another test in this process may have replaced it, as Spark does.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    async def test() -> None:
        ended: list[str] = []
        with StopSignals().ending([signal.SIGINT], lambda: ended.append("a")):
            signal.raise_signal(signal.SIGINT)
            await until(lambda: ended)
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(TIMEOUT_S)

    with pytest.raises(KeyboardInterrupt):
        play(new_loop, test())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize("before", [signal.SIG_DFL, signal.SIG_IGN])
async def test_the_default_handler_and_ignoring_are_restored(
    own: Own, before: signal.Handlers
) -> None:
    signal.signal(NUMBER, before)
    with StopSignals().ending([NUMBER], lambda: None):
        assert signal.getsignal(NUMBER) is not before
    assert signal.getsignal(NUMBER) is before


async def test_one_signal_needs_no_collection(own: Own) -> None:
    ended: list[str] = []
    with StopSignals().ending(NUMBER, lambda: ended.append("a")):
        signal.raise_signal(NUMBER)
        await until(lambda: ended)
    assert own.count == 0


async def test_a_handler_that_the_application_sets_during_a_run_stays(own: Own) -> None:
    later = Own()
    with StopSignals().ending([NUMBER], lambda: None):
        signal.signal(NUMBER, later)
    assert signal.getsignal(NUMBER) is later


@LOOPS
def test_a_signal_wakes_a_loop_that_has_nothing_to_do(own: Own, new_loop: NewLoop) -> None:
    async def test() -> None:
        ended = asyncio.Event()
        with StopSignals().ending([NUMBER], ended.set):
            from_outside = threading.Timer(0.2, os.kill, [os.getpid(), NUMBER])
            from_outside.start()
            began_s = time.monotonic()
            await asyncio.wait_for(ended.wait(), TIMEOUT_S)
            from_outside.join()
        assert time.monotonic() - began_s < TIMEOUT_S / 2

    play(new_loop, test())


@pytest.mark.parametrize(
    "wrong", [[NUMBER, signal.SIGKILL], int(NUMBER), "SIGTERM", [NUMBER, 4711]]
)
async def test_a_signal_that_cannot_be_handled_is_rejected_and_nothing_is_changed(
    own: Own,
    wrong: Any,  # noqa: ANN401 - deliberately not signals.
) -> None:
    with (
        pytest.raises(ConfigError, match="stop_on"),
        StopSignals().ending(wrong, lambda: None),
    ):
        raise AssertionError
    assert signal.getsignal(NUMBER) is own


def test_stop_on_is_rejected_outside_of_the_main_thread() -> None:
    async def test() -> None:
        with (
            pytest.raises(ConfigError, match="stop_on works only in the main thread"),
            StopSignals().ending([NUMBER], lambda: None),
        ):
            raise AssertionError
        with StopSignals().ending([], lambda: None):
            done.append(True)

    done: list[bool] = []
    thread = threading.Thread(target=lambda: asyncio.run(test()))
    thread.start()
    thread.join()
    assert done


async def test_a_signal_ends_the_runs_of_all_consumers(
    own: Own, virtual_kafka: VirtualKafka
) -> None:
    await virtual_kafka.create_topic("t", partitions=1)
    settings: Any = {"bootstrap_servers": virtual_kafka.bootstrap_servers}
    async with (
        Consumer("t", group_id="a", **settings) as first,
        Consumer("t", group_id="b", **settings) as second,
    ):
        runs = [
            asyncio.create_task(consumer.run(print, stop_on=(NUMBER,)))
            for consumer in (first, second)
        ]
        await asyncio.sleep(10)
        signal.raise_signal(NUMBER)
        async with asyncio.timeout(TIMEOUT_S):
            await asyncio.gather(*runs)
    assert signal.getsignal(NUMBER) is own
