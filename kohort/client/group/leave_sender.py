"""Sends LeaveGroup to the coordinator."""

from __future__ import annotations

import asyncio
import logging
import time

from kohort.client.core.errors import ConsumerError
from kohort.client.core.group.heartbeat import SendLeave
from kohort.client.core.group.requests import leave_request
from kohort.client.group.coordinator import Coordinator
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.leave_group import LeaveGroupRequest

logger = logging.getLogger(__name__)


class LeaveSender:
    """Sends the LeaveGroup of one member; continues even if its caller is cancelled."""

    def __init__(self, coordinator: Coordinator, group_instance_id: str | None) -> None:
        self._coordinator = coordinator
        self._instance_id = group_instance_id
        self._task: asyncio.Task[None] | None = None

    def begin(self, leave: SendLeave, deadline_s: float) -> asyncio.Task[None] | None:
        """Start sending it, until `deadline_s` on the clock of `time.monotonic`; None if that has
        passed.
        """
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return None
        self._task = asyncio.create_task(
            self._send(leave, left_s), name=f"leave {self._coordinator.group_id}"
        )
        return self._task

    def give_up(self) -> None:
        """Stop waiting for the response."""
        if self._task is not None:
            self._task.cancel()

    async def close(self, timeout_s: float) -> None:
        """Wait for the response for at most `timeout_s`."""
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=timeout_s)
        self.give_up()

    async def _send(self, leave: SendLeave, timeout_s: float) -> None:
        group_id = self._coordinator.group_id
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._coordinator.connection("group")
                version = connection.versions.best(LeaveGroupRequest)
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
            logger.info("LeaveGroup: %s", ErrorCode(answer.error_code).name)
