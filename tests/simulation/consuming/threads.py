"""The heartbeat thread on virtual time: a real thread that runs only while the loop waits for it.

`turns` puts stand-ins for what the module of the heartbeat thread has of `threading` and for its
blocking connection. A thread that waits, on a condition or for an answer, hands the turn back to
the loop, and is given it again when its time has come. So one thing happens at a time, in an order
that only the seed decides, and the code of the thread is the one that runs in production.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeVar

from kohort.client.group import heartbeat_thread
from kohort.client.net.address import Address
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.opening import open_connection
from kohort.client.net.versions import ApiVersionTable

T = TypeVar("T")


class TurnTaker:
    now: "TurnTaker | None" = None
    """Whose turn it is; None: the loop's."""
    alive: "set[TurnTaker]"
    """Begun and not over."""

    def __init__(self, *, target: Callable[[], None], name: str, daemon: bool) -> None:
        self.ident: int | None = None
        self._target = target
        self._loop = asyncio.get_running_loop()
        self._go = _closed_gate()
        self._back = _closed_gate()
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=lambda: context.run(self._run), name=name, daemon=daemon
        )

    def start(self) -> None:
        self.ident = 1
        TurnTaker.alive.add(self)
        self._thread.start()
        self._loop.call_soon(self.take_turn)

    def join(self, timeout: float | None = None) -> None:
        """On the loop, when nothing is left to do in it."""
        self._thread.join(timeout)

    def take_turn(self) -> None:
        """On the loop: the thread runs until it waits."""
        TurnTaker.now = self
        self._go.release()
        self._back.acquire()
        TurnTaker.now = None

    def wait(self) -> None:
        """In the thread: until `take_turn` is called."""
        self._back.release()
        self._go.acquire()
        TurnTaker.now = self

    def finish(self, steps: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """In the thread: have it done on the loop, and wait until it is."""
        task = self._loop.create_task(steps)
        task.add_done_callback(lambda _: self.take_turn())
        self.wait()
        return task

    def wait_at_most(self, timeout_s: float | None, wakers: list[Callable[[], None]]) -> None:
        """In the thread: until the time is over, or one of `wakers` is called."""
        is_awake = False

        def wake() -> None:
            nonlocal is_awake
            if not is_awake:
                is_awake = True
                self._loop.call_soon(self.take_turn)

        wakers.append(wake)
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, wake)
        self.wait()
        if timer is not None:
            timer.cancel()
        with suppress(ValueError):
            wakers.remove(wake)

    def _run(self) -> None:
        self._go.acquire()
        try:
            self._target()
        finally:
            TurnTaker.alive.discard(self)
            self._back.release()


def _closed_gate() -> threading.Lock:
    """To be opened once for each that goes through."""
    gate = threading.Lock()
    gate.acquire()
    return gate


class Condition:
    """In place of `threading.Condition`: no other thread runs while one holds it."""

    def __init__(self) -> None:
        self._wakers: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def wait(self, timeout: float | None = None) -> None:
        taker = TurnTaker.now
        assert taker is not None, "the loop waits for a thread"
        taker.wait_at_most(timeout, self._wakers)

    def notify(self) -> None:
        wakers, self._wakers = self._wakers[:1], self._wakers[1:]
        for wake in wakers:
            wake()


class ThreadsConnection:
    """In place of `BlockingConnection`: one of the loop's, which the thread waits for."""

    def __init__(self, address: Address, config: ConnectionConfig) -> None:
        self.address = address
        self.versions = ApiVersionTable()
        self._config = config
        self._connection: BrokerConnection | None = None
        self._task: asyncio.Task[Any] | None = None
        self._is_closed = False

    def open(self, timeout_s: float) -> None:
        self._connection = self._finish(open_connection(*self.address, self._config), timeout_s)
        self.versions = self._connection.versions

    def call(self, request: object, timeout_s: float, *, version: int | None = None) -> Any:  # noqa: ANN401
        if self._connection is None:
            raise DisconnectedError("the connection is closed")
        try:
            return self._finish(self._connection.call(request, version=version), timeout_s)
        except DisconnectedError:
            self.close()
            raise

    def close(self) -> None:
        self._is_closed = True
        if self._connection is not None:
            self._connection.close()
        if self._task is not None:
            self._task.cancel()

    def _finish(self, steps: Coroutine[Any, Any, T], timeout_s: float) -> T:
        taker = TurnTaker.now
        assert taker is not None, "the loop waits for a blocking connection"

        async def within() -> T:
            self._task = asyncio.current_task()
            async with asyncio.timeout(timeout_s):
                return await steps

        if self._is_closed:
            steps.close()
            raise DisconnectedError("the connection is closed")
        task = taker.finish(within())
        self._task = None
        if task.cancelled() or isinstance(task.exception(), TimeoutError):
            raise DisconnectedError("no answer in time, or closed meanwhile")
        return task.result()


class _Threading:
    Thread = TurnTaker
    Condition = Condition


@contextmanager
def turns() -> Iterator[set[TurnTaker]]:
    """Heartbeat threads that are made within it take turns with the loop; those that live."""
    module: Any = heartbeat_thread
    real = module.threading, module.BlockingConnection
    module.threading, module.BlockingConnection = _Threading, ThreadsConnection
    TurnTaker.alive = set()
    try:
        yield TurnTaker.alive
    finally:
        module.threading, module.BlockingConnection = real
