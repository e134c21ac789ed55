"""Sends the heartbeats of a Kohort consumer on its event loop, for virtual time, which has no
threads.

The same `HeartbeatRules` decide when; only their execution differs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kohort.client.clock import monotonic_ms
from kohort.client.core.errors import AuthenticationError, TlsError, TokenError
from kohort.client.core.group.heartbeat import (
    Action,
    Finding,
    HeartbeatRules,
    LookUpCoordinator,
    SendHeartbeat,
    SendLeave,
    Wait,
)
from kohort.client.core.group.identity import Identity
from kohort.client.core.group.requests import coordinator_in, coordinator_request, leave_request
from kohort.client.core.group.statistics import Figures
from kohort.client.group.heartbeat_thread import HeartbeatThreadConfig
from kohort.client.net.address import Address
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.opening import open_connection
from kohort.client.net.versions import UnsupportedVersionError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.find_coordinator import FindCoordinatorRequest
from kohort.protocol.messages.heartbeat import HeartbeatRequest
from kohort.protocol.messages.leave_group import LeaveGroupRequest

logger = logging.getLogger(__name__)


class LoopHeartbeats:
    """Heartbeats with the interface of `HeartbeatThread`."""

    def __init__(
        self,
        config: HeartbeatThreadConfig,
        rules: HeartbeatRules,
        *,
        loop: asyncio.AbstractEventLoop,
        on_findings: Callable[[], None],
    ) -> None:
        self._config = config
        self._rules = rules
        self._loop = loop
        self._on_findings = on_findings
        self._changed = asyncio.Event()
        self._coordinator: Address | None = None
        self._brokers: Sequence[Address] = ()
        self._connection: BrokerConnection | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._loop.create_task(
            self._run(), name=f"kohort heartbeat of {self._config.group_id}"
        )

    def begin(self, identity: Identity, coordinator: Address, brokers: Sequence[Address]) -> None:
        self._rules.begin(identity, monotonic_ms())
        self._coordinator = coordinator
        self._brokers = tuple(brokers)
        self._changed.set()

    def coordinator_found(self, address: Address) -> None:
        self._coordinator = address
        if not self._rules.is_coordinator_known:
            self._rules.found_coordinator(ErrorCode.NONE, monotonic_ms())
        self._changed.set()

    def know_brokers(self, brokers: Sequence[Address]) -> None:
        self._brokers = tuple(brokers)

    def end(self) -> None:
        self._rules.end()
        self._changed.set()

    def polled(self) -> None:
        self._rules.polled(monotonic_ms())

    def take_findings(self) -> list[Finding]:
        return self._rules.take_findings()

    @property
    def last_success_ms(self) -> int | None:
        return self._rules.last_success_ms

    @property
    def trouble(self) -> ErrorCode:
        return self._rules.trouble

    def figures(self, now_ms: int) -> Figures:
        return self._rules.statistics.figures(now_ms)

    def stop(self) -> None:
        self._rules.end()
        if self._task is not None:
            self._task.cancel()

    async def wait_stopped(self, timeout_s: float) -> bool:
        if self._task is None:
            return True
        done, _ = await asyncio.wait([self._task], timeout=timeout_s)
        return bool(done)

    # Runs in the task.

    async def _run(self) -> None:
        try:
            while True:
                self._changed.clear()
                action = self._rules.next_action(monotonic_ms())
                if not isinstance(action, Wait):
                    await self._act(action)
                    continue
                if self._rules.has_findings:
                    self._loop.call_soon(self._on_findings)
                left_s = None
                if action.until_ms is not None:
                    left_s = max(action.until_ms - monotonic_ms(), 1) / 1_000
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s):
                        await self._changed.wait()
        finally:
            self._disconnect()

    async def _act(self, action: Action) -> None:
        try:
            match action:
                case SendHeartbeat(identity):
                    code = await self._send_heartbeat(identity)
                    self._rules.answered(identity, code, monotonic_ms())
                case LookUpCoordinator():
                    code = await self._find_coordinator()
                    self._rules.found_coordinator(code, monotonic_ms())
                case SendLeave():
                    await self._send_leave(action)
                case Wait():
                    pass
        except (TokenError, TlsError) as error:
            logger.warning("heartbeat of group %s: %s", self._config.group_id, error)
            self._give_up_action(action)
        except AuthenticationError as error:
            self._disconnect()
            self._rules.refused(error.code)
        except (DisconnectedError, UnsupportedVersionError) as error:
            logger.debug("heartbeat of group %s: %s", self._config.group_id, error)
            self._give_up_action(action)

    def _give_up_action(self, action: Action) -> None:
        self._disconnect()
        if isinstance(action, LookUpCoordinator):
            self._rules.found_coordinator(ErrorCode.NETWORK_EXCEPTION, monotonic_ms())
        else:
            self._rules.failed(monotonic_ms())

    async def _send_heartbeat(self, identity: Identity) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=self._config.group_id,
            generation_id=identity.generation,
            member_id=identity.member_id,
            group_instance_id=self._config.group_instance_id,
        )
        answer = await self._call_coordinator(HeartbeatRequest, lambda _: request)
        return ErrorCode(answer.error_code)

    async def _send_leave(self, leave: SendLeave) -> None:
        config = self._config
        await self._call_coordinator(
            LeaveGroupRequest,
            lambda version: leave_request(
                config.group_id, config.group_instance_id, leave, version
            ),
        )

    async def _find_coordinator(self) -> ErrorCode:
        failure = DisconnectedError("no broker is known")
        for address in self._brokers:
            try:
                connection = await self._connect(address)
                version = connection.versions.best(FindCoordinatorRequest)
                request = coordinator_request(self._config.group_id, version)
                answer = await connection.call(request, version=version, timeout_ms=self._timeout)
            except DisconnectedError as error:
                failure = error
                continue
            finally:
                self._disconnect()
            code, _, host, port = coordinator_in(answer)
            if code is ErrorCode.NONE:
                self._coordinator = Address(host, port)
            return code
        raise failure

    async def _call_coordinator(self, kind: type, request_for: Callable[[int], object]) -> Any:  # noqa: ANN401
        if self._coordinator is None:
            raise DisconnectedError("no coordinator")
        connection = self._connection
        if connection is None or connection.is_closed:
            connection = await self._connect(self._coordinator)
        version = connection.versions.best(kind)
        return await connection.call(
            request_for(version), version=version, timeout_ms=self._timeout
        )

    async def _connect(self, address: Address) -> BrokerConnection:
        self._disconnect()
        self._connection = await open_connection(*address, self._config.connection)
        return self._connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def _timeout(self) -> int:
        return self._config.request_timeout_ms
