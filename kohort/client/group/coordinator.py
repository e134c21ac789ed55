"""A consumer's group coordinator: looked up when needed, dropped when it has moved or fails; and
the LeaveGroup sent to it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from kohort.client.core.errors import ConsumerError
from kohort.client.core.group.heartbeat import SendLeave
from kohort.client.core.group.requests import (
    coordinator_in,
    coordinator_request,
    leave_request,
    leave_type,
)
from kohort.client.net.address import Address
from kohort.client.net.cluster import Cluster
from kohort.client.net.connection import BrokerConnection
from kohort.client.net.errors import DisconnectedError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.find_coordinator import FindCoordinatorRequest

logger = logging.getLogger(__name__)


class Coordinator:
    """Finds the coordinator of one group and connects to it."""

    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self.group_id = group_id
        self.address: Address | None = None
        self.on_found: Callable[[Address], None] = lambda _: None
        """Called with the coordinator's address after each successful lookup."""
        self._cluster = cluster
        self._search: asyncio.Task[ErrorCode] | None = None

    async def find(self) -> ErrorCode:
        """Find the coordinator, unless it is known. Concurrent callers share one request.

        Returns:
            NONE if it is known now; otherwise the broker's error code.

        Raises:
            DisconnectedError, BrokerUnreachableError: no broker answers.
            AuthenticationError: the broker rejects the credentials.
        """
        if self.address is not None:
            return ErrorCode.NONE
        if self._search is None or self._search.done():
            self._search = asyncio.create_task(
                self._ask(), name=f"find the coordinator of {self.group_id}"
            )
            self._search.add_done_callback(_consume_exception)
        return await asyncio.shield(self._search)

    async def connection(self, purpose: str) -> BrokerConnection:
        """Connect to the coordinator.

        Raises:
            DisconnectedError: it is not known, or cannot be reached.
        """
        address = self.address
        if address is None:
            raise DisconnectedError(f"the coordinator of {self.group_id} is not known")
        return await self._cluster.connection(address, purpose)

    def lost(self, address: Address | None = None) -> None:
        """Drop the coordinator, if it is the one at `address` (None: whichever)."""
        if address is None or address == self.address:
            self.address = None

    def close(self) -> None:
        if self._search is not None:
            self._search.cancel()

    async def _ask(self) -> ErrorCode:
        connection = await self._cluster.any_connection()
        version = connection.versions.best(FindCoordinatorRequest)
        request = coordinator_request(self.group_id, version)
        code, node_id, host, port = coordinator_in(await connection.call(request, version=version))
        if code is ErrorCode.NONE:
            self.address = Address(host, port)
            self.on_found(self.address)
            logger.info("group %s: coordinated by broker %d", self.group_id, node_id)
        return code


def _consume_exception(task: asyncio.Task[ErrorCode]) -> None:
    """Retrieve the exception, so that asyncio does not log it if all callers were cancelled."""
    if not task.cancelled():
        task.exception()


class LeaveSender:
    """Sends the LeaveGroup of one member; continues even if its caller is cancelled."""

    def __init__(self, coordinator: Coordinator, group_instance_id: str | None) -> None:
        self._coordinator = coordinator
        self._instance_id = group_instance_id
        self._task: asyncio.Task[None] | None = None

    def begin(self, leave: SendLeave, deadline_s: float) -> asyncio.Task[None] | None:
        """Start a task that sends the LeaveGroup and cancels it at `deadline_s` (`time.monotonic`);
        None if that has passed.
        """
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return None
        self._task = asyncio.create_task(
            self._send(leave, left_s), name=f"leave {self._coordinator.group_id}"
        )
        return self._task

    def give_up(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def close(self, timeout_s: float) -> None:
        """Wait at most `timeout_s` for the response to the LeaveGroup, then cancel the request."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=timeout_s)
        self.give_up()

    async def _send(self, leave: SendLeave, timeout_s: float) -> None:
        group_id = self._coordinator.group_id
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._coordinator.connection("group")
                version = connection.versions.best(leave_type(leave))
                request = leave_request(group_id, self._instance_id, leave, version)
                answer = await connection.call(request, version=version)
        except (ConsumerError, TimeoutError) as error:
            logger.warning(
                "group %s: leaving failed, so the member stays until its session expires: %s",
                group_id,
                str(error) or "no response in time",
            )
            return
        if answer.error_code:
            logger.info("leaving: %s", ErrorCode(answer.error_code).name)
