"""The requests of a member of the classic protocol whose responses may take as long as a rebalance:
JoinGroup and SyncGroup, and the assignment that a leader computes between them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from kohort.client.clock import monotonic_ms
from kohort.client.core.errors import error_for
from kohort.client.core.group.actions import Assign, Join, Sync
from kohort.client.net.errors import DisconnectedError
from kohort.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kohort.client.config import ConsumerConfig
    from kohort.client.core.group.assignors import Assignor
    from kohort.client.core.group.assignors.assignor import Assignment
    from kohort.client.core.group.membership import Membership
    from kohort.client.core.group.statistics import GroupStatistics
    from kohort.client.group.coordinator import Coordinator
    from kohort.client.net.connection import BrokerConnection
    from kohort.client.net.metadata import MetadataKeeper

logger = logging.getLogger(__name__)

GRACE_MS: Final = 5_000
"""Added to the rebalance timeout when waiting for a JoinGroup response, as in the Java consumer."""

INSTANCE_ID_SINCE: Final = 5
"""The JoinGroup version that introduced static membership."""

LARGE_GROUP: Final = 100
"""Group size from which the assignor runs in a thread, so that it does not block the event loop."""


class ClassicRequests:
    def __init__(
        self,
        config: ConsumerConfig,
        coordinator: Coordinator,
        metadata: MetadataKeeper,
        statistics: GroupStatistics,
    ) -> None:
        self._config = config
        self._coordinator = coordinator
        self._metadata = metadata
        self._statistics = statistics
        self.parked_on: BrokerConnection | None = None
        """The connection on which a join or sync response is pending."""
        self._got_id = False
        """Whether the last JoinGroup failed with MEMBER_ID_REQUIRED, so the next one repeats it."""
        self.leading: frozenset[str] = frozenset()
        """The topics of all members while this leader refreshes their metadata; empty otherwise."""

    async def run(self, action: Join | Assign | Sync, membership: Membership) -> None:
        """Perform the action, and report its result to the membership."""
        match action:
            case Join():
                await self._join(action, membership)
            case Assign():
                await self._assign(action, membership)
            case Sync():
                await self._sync(action, membership)

    def abandon(self) -> None:
        """Stop waiting for a response, by closing its connection."""
        if self.parked_on is not None:
            # Any other request on this connection would be answered only after the abandoned join.
            self.parked_on.close()
            self.parked_on = None

    async def _join(self, action: Join, membership: Membership) -> None:
        if not self._got_id:  # Then it is the second request of one join (KIP-394).
            logger.info("group %s: joining: %s", self._coordinator.group_id, action.request.reason)
        answer = await self._call(action)
        self._got_id = answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
        if answer is None:
            self._statistics.join_answered(ErrorCode.NETWORK_EXCEPTION, monotonic_ms())
            membership.join_failed(action.identity, monotonic_ms())
        else:
            self._statistics.join_answered(answer.error_code, monotonic_ms())
            membership.join_answered(action.identity, answer, monotonic_ms())
            self._forget_coordinator(answer.error_code)

    async def _sync(self, action: Sync, membership: Membership) -> None:
        answer = await self._call(action)
        if answer is None:
            self._statistics.sync_answered(ErrorCode.NETWORK_EXCEPTION, monotonic_ms())
            membership.sync_failed(action.identity, monotonic_ms())
        else:
            self._statistics.sync_answered(answer.error_code, monotonic_ms())
            membership.sync_answered(action.identity, answer, monotonic_ms())
            self._forget_coordinator(answer.error_code)

    async def _call(self, action: Join | Sync) -> Any:  # noqa: ANN401 - a response.
        """Send the request; return None if the coordinator was lost."""
        config, kind = self._config, type(action.request)
        is_join = isinstance(action, Join)
        timeout_ms = config.request_timeout_ms
        if is_join:  # It is parked until all members have joined.
            timeout_ms = max(timeout_ms, config.max_poll_interval_ms + GRACE_MS)
        try:
            connection = await self._coordinator.connection("group")
            version = connection.versions.best(kind)
            if is_join and config.group_instance_id and version < INSTANCE_ID_SINCE:
                raise error_for(ErrorCode.UNSUPPORTED_VERSION, "joining with a group_instance_id")
            self.parked_on = connection
            try:
                return await connection.call(action.request, version=version, timeout_ms=timeout_ms)
            finally:
                self.parked_on = None
        except DisconnectedError as error:
            logger.debug("group %s: %s: %s", self._coordinator.group_id, kind.__name__, error)
            self._coordinator.lost()
            return None

    def _forget_coordinator(self, error_code: int) -> None:
        if error_code in {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}:
            self._coordinator.lost()

    async def _assign(self, action: Assign, membership: Membership) -> None:
        # From now on metadata must cover everything that the group's members subscribe to.
        self.leading = action.topics
        try:
            await self._metadata.refresh()
        finally:
            self.leading = frozenset()
        counts = self._metadata.cluster.partition_counts(action.topics)
        assignment: Assignment = {}
        if action.assignor is not None:
            assignment = await _run_assignor(action.assignor, action, counts)
        # A missing topic counts as 0 partitions, so that the leader notices when it is created.
        membership.assigned(assignment, {name: counts.get(name, 0) for name in action.topics})


async def _run_assignor(assignor: Assignor, action: Assign, counts: dict[str, int]) -> Assignment:
    if len(action.members) < LARGE_GROUP:
        return assignor.assign(counts, action.members)
    return await asyncio.to_thread(assignor.assign, counts, action.members)
