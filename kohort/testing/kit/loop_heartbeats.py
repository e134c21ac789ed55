"""Sends the heartbeats of a Kohort consumer on its event loop, for virtual time, which has no
threads.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kohort.client.clock import monotonic_ms
from kohort.client.core.group.heartbeat import HeartbeatRules, Wait
from kohort.client.group.heartbeat_thread import HeartbeatThread, HeartbeatThreadConfig
from kohort.client.net.address import Address
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.opening import open_connection


class LoopHeartbeats(HeartbeatThread):
    """The heartbeat thread as a task."""

    def __init__(
        self,
        config: HeartbeatThreadConfig,
        rules: HeartbeatRules,
        *,
        loop: asyncio.AbstractEventLoop,
        on_findings: Callable[[], None],
    ) -> None:
        super().__init__(config, rules, loop=loop, on_findings=on_findings)
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(self._beat(), name=self._thread.name)

    def stop(self) -> None:
        super().stop()
        if self._task is not None:
            self._task.cancel()

    async def wait_stopped(self, timeout_s: float) -> bool:
        if self._task is None:
            return True
        done, _ = await asyncio.wait([self._task], timeout=timeout_s)
        return bool(done)

    def _wake(self) -> None:
        self._woken.set()

    async def _beat(self) -> None:
        try:
            while True:
                self._woken.clear()
                now_ms = monotonic_ms()
                action = self._rules.next_action(now_ms)
                if not isinstance(action, Wait):
                    await self._act(action)
                    continue
                self._report_findings()
                left_s = None
                if action.until_ms is not None:
                    left_s = max(action.until_ms - now_ms, 1) / 1000
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._woken.wait()
        finally:
            self._disconnect()

    async def _connect(self, address: Address) -> BrokerConnection:
        self._connection = await open_connection(*address, self._config.connection)
        return self._connection

    async def _call(self, connection: Any, request: object, version: int, timeout_s: float) -> Any:  # noqa: ANN401
        return await connection.call(request, version=version, timeout_ms=round(timeout_s * 1000))
