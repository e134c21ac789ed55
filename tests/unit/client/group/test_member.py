"""How a member uses the findings of its heartbeat thread."""

import asyncio
import time
from typing import Any

from kohort.client.clock import monotonic_ms
from kohort.client.group.heartbeat_thread import heartbeats_are_sent_by
from kohort.client.group.listener import Partitions, RebalanceListener
from kohort.client.group.rebalance import Rebalance
from kohort.client.net.address import Address
from kohort.client.net.versions import ApiVersionTable
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.membership import JoinGroupRequest
from kohort.testing.virtual_kafka import LoopHeartbeats
from tests.unit.client import scripted_brokers
from tests.unit.client.scripted_coordinator import ME, A, B, Scene, ScriptedCoordinator


class Joins(ScriptedCoordinator):
    """Records JoinGroup requests, and does not answer them."""

    def __init__(self) -> None:
        super().__init__()
        self.versions = ApiVersionTable({10: (0, 6), 11: (0, 9)})
        self.joined = asyncio.get_running_loop().create_future()

    async def call(self, request: Any, *, version: int, timeout_ms: int = 0) -> Any:  # noqa: ANN401
        if not isinstance(request, JoinGroupRequest):
            return await super().call(request, version=version, timeout_ms=timeout_ms)
        self.joined.set_result(request)
        return await asyncio.get_running_loop().create_future()

    def close(self) -> None:
        """In place of BrokerConnection.close."""


def test_a_finding_during_a_blocking_callback_decides_the_next_action() -> None:
    async def test() -> None:
        heartbeats_are_sent_by.set(LoopHeartbeats)
        scene, broker = Scene(), Joins()
        scene.cluster._broker = broker
        member, subscription = scene.member, scene.member._subscription
        fetching = scripted_brokers.Scene(1, 1)
        rebalance = member._rebalance = Rebalance(
            subscription=subscription,
            positions=fetching.positions,
            fetcher=fetching.fetcher,
            offsets=None,
            processed=dict,
            commits_by_itself=False,
            commit_timeout_s=10,
            on_progress=lambda: None,
        )
        heartbeats: Any = member.heartbeats

        class Listener(RebalanceListener):
            async def on_revoked(self, partitions: Partitions) -> None:
                # As the thread does while this callback blocks the loop.
                assert partitions == {A, B}
                heartbeats._rules.answered(ME, ErrorCode.UNKNOWN_MEMBER_ID, monotonic_ms())

        rebalance.listener = Listener()
        await scene.coordinator.find()
        heartbeats.begin(ME, Address("one", 1), [])
        subscription.assigned = frozenset({A, B})
        subscription.subscribe(["another"])
        await member.advance(time.monotonic() + 10)
        request = await broker.joined
        assert (request.member_id, member.membership.identity.is_valid) == ("", False)
        await member.close(1)
        await fetching.fetcher.close()

    scripted_brokers.run(test())
