"""Starts and stops a consumer's engine, each only once, even if several tasks request it."""

from __future__ import annotations

import asyncio
import dataclasses
import ssl
import time
from typing import Final

from kohort.client.config import ConsumerConfig
from kohort.client.core.errors import ConsumerClosedError, IllegalStateError
from kohort.client.core.group.subscription import Subscription
from kohort.client.engine.engine import Engine
from kohort.client.group.listener import RebalanceListener, listener_from
from kohort.client.net.thread_call import run_in_thread
from kohort.client.processing.run_controller import RunController

CLOSE_TIMEOUT_S: Final = 30.0
"""Default time limit of closing, for all steps together."""


class Lifecycle:
    def __init__(
        self, config: ConsumerConfig, subscription: Subscription, runs: RunController
    ) -> None:
        self.config = config
        self.engine: Engine | None = None
        """The engine, set once connected and kept after closing."""
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop on which the engine was started."""
        self._subscription = subscription
        self._runs = runs
        self._listener: RebalanceListener = listener_from(None)
        self._starting: asyncio.Task[None] | None = None
        self._is_given_up = False
        """Whether the consumer was stopped before the engine was created."""

    @property
    def is_closed(self) -> bool:
        engine = self.engine
        return self._is_given_up or (engine is not None and engine.shutdown.is_closed)

    def check_open(self) -> None:
        """Raise a ConsumerClosedError if the consumer is closed."""
        if self.is_closed:
            raise ConsumerClosedError("this consumer is closed")

    def running(self) -> Engine:
        """The engine of a consumer that is started and not closed.

        Raises:
            ConsumerClosedError, IllegalStateError: it is closed, or not started, or was started on
                another event loop.
        """
        self.check_open()
        if self.engine is None:
            raise IllegalStateError("start() the consumer first, or use it in `async with`")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return self.engine  # A plain method, called outside of the loop: it waits for nothing.
        if loop is not self._loop:
            raise IllegalStateError(
                "this consumer was started on another event loop; start, use and stop it within one"
                " asyncio.run()"
            )
        return self.engine

    def listen(self, listener: RebalanceListener) -> None:
        self._listener = listener
        if self.engine is not None:
            self.engine.rebalance.listener = listener

    async def start(self) -> None:
        if self.is_closed:
            raise ConsumerClosedError("a closed consumer cannot be restarted; create a new one")
        if self.engine is not None:
            return
        if self._starting is None:
            self._starting = asyncio.create_task(self._start(), name="start a consumer")
        starting = self._starting
        try:
            # A second concurrent call waits for the same start.
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            if starting.cancelled() and self.is_closed:
                raise ConsumerClosedError(
                    "this consumer was closed while it was starting"
                ) from None
            starting.cancel()
            raise
        finally:
            self._starting = None

    async def _start(self) -> None:
        engine = Engine(await self._ready_config(), self._subscription)
        engine.rebalance.listener = self._listener
        await engine.start()
        self._loop = asyncio.get_running_loop()
        self.engine = engine

    async def _ready_config(self) -> ConsumerConfig:
        """Return the config; if TLS trusts the system's CAs, load them once for all connections."""
        config = self.config
        is_given = config.ssl_context is not None or config.security.files is not None
        if config.security.uses_tls and not is_given:
            context = await run_in_thread(ssl.create_default_context, "load the system's CAs")
            config = self.config = dataclasses.replace(config, ssl_context=context)
        return config

    async def stop(self, timeout_s: float, *, leave: bool | None, commits_all: bool) -> None:
        """Implements `Consumer.stop`. `commits_all`: also auto-commit the records returned last."""
        if self.engine is None:
            self._is_given_up = True
            if self._starting is not None:
                self._starting.cancel()
                await asyncio.wait([self._starting])
        engine = self.engine
        if engine is not None:
            left_s = await self._end_run_first(engine, timeout_s, leave=leave)
            await engine.close(left_s, leaves=leave, commits_all=commits_all)

    async def _end_run_first(
        self, engine: Engine, timeout_s: float, *, leave: bool | None
    ) -> float:
        """Let running handlers finish. Returns the seconds that remain of `timeout_s`."""
        deadline_s = time.monotonic() + timeout_s
        try:
            await self._runs.end_within(timeout_s)
        except asyncio.CancelledError:
            await engine.close(0.0, leaves=leave, commits_all=False)
            raise
        return max(0.0, deadline_s - time.monotonic())
