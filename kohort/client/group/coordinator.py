"""A consumer's group coordinator: looked up when needed, dropped when it has moved or fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from kohort.client.core.group.requests import coordinator_in, coordinator_request
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
        """Drop the coordinator because it has moved or does not answer; with an `address`, only if
        that is the known one.
        """
        if address is None or address == self.address:
            self.address = None

    def close(self) -> None:
        """Cancel a lookup in progress."""
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
