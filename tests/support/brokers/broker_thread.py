"""A whole broker on an event loop of its own, in a thread of the test's process.

Tests talk to it over real sockets, blocking ones; what they want to see or break inside of it they
do on its loop with `call`.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Self, TypeVar

from kohort.broker.app import Broker
from kohort.broker.config import load
from kohort.broker.environment import Environment

T = TypeVar("T")

DEFAULTS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "kohort.metrics.port": "-1",
    "kohort.console.port": "-1",
    "group.initial.rebalance.delay.ms": "0",
}


class BrokerThread:
    """`overrides` are settings under Kafka's names."""

    def __init__(
        self,
        directory: Path,
        *,
        overrides: Mapping[str, str] | None = None,
        loop_factory: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
        environment: Environment | None = None,
    ) -> None:
        settings = {**DEFAULTS, "log.dirs": str(directory), **(overrides or {})}
        given = [f"{name}={value}" for name, value in settings.items()]
        self.broker = Broker(load(overrides=given, environment={}), environment=environment)
        self._loop_factory = loop_factory
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)
        self._is_ready = threading.Event()
        self._error: BaseException | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event

    @property
    def port(self) -> int:
        return self.broker.endpoint.port

    def call(self, function: Callable[[], T]) -> T:
        """What `function` returns, run between two turns of the broker's loop."""

        async def on_loop() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(on_loop(), self._loop).result(30)

    def wait_for(self, function: Callable[[], Coroutine[object, object, T]]) -> T:
        """What `function` returns, awaited on the broker's loop."""
        return asyncio.run_coroutine_threadsafe(function(), self._loop).result(30)

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_ready.wait(60)
        if self._error is not None:
            raise self._error
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop the broker cleanly, as SIGTERM would; raises what it raised."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(60)
        assert not self._thread.is_alive(), "the broker does not stop"
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self._loop_factory) as runner:
                runner.run(self._serve())
        except BaseException as error:  # noqa: BLE001 - raised in the test's thread.
            self._error = error
        finally:
            self._is_ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        async with self.broker.running():
            self._is_ready.set()
            await self._stop.wait()
