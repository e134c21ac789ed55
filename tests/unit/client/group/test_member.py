"""How a member uses the findings of its heartbeat thread."""

import asyncio
import logging
import time
from typing import Any

import pytest

from kohort import Consumer
from kohort.client.clock import monotonic_ms
from kohort.client.core.errors import AuthenticationError
from kohort.client.group import member as member_module
from kohort.client.group.heartbeat_thread import heartbeats_are_sent_by
from kohort.client.group.listener import Partitions, RebalanceListener
from kohort.client.group.rebalance import Rebalance
from kohort.client.net.address import Address
from kohort.client.net.versions import ApiVersionTable
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.membership import JoinGroupRequest
from kohort.testing import VirtualKafka
from kohort.testing.virtual_kafka import LoopHeartbeats
from tests.support.waiting import until
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


def rebalance_of(scene: Scene, fetching: scripted_brokers.Scene) -> Rebalance:
    return Rebalance(
        subscription=scene.member._subscription,
        positions=fetching.positions,
        fetcher=fetching.fetcher,
        offsets=None,
        processed=dict,
        commits_by_itself=False,
        commit_timeout_s=10,
        on_progress=lambda: None,
    )


def test_a_finding_during_a_blocking_callback_decides_the_next_action() -> None:
    async def test() -> None:
        heartbeats_are_sent_by.set(LoopHeartbeats)
        scene, broker = Scene(), Joins()
        scene.cluster._broker = broker
        member, subscription = scene.member, scene.member._subscription
        fetching = scripted_brokers.Scene(1, 1)
        rebalance = member._rebalance = rebalance_of(scene, fetching)
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


class Refuses(ScriptedCoordinator):
    """Rejects the credentials."""

    async def call(self, request: Any, *, version: int, timeout_ms: int = 0) -> Any:  # noqa: ANN401
        self.searches += 1
        raise AuthenticationError("wrong password")


def test_what_failed_is_not_repeated_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user with a wrong password could be locked out."""

    async def test() -> None:
        monkeypatch.setattr(member_module, "monotonic_ms", lambda: 0)
        heartbeats_are_sent_by.set(LoopHeartbeats)
        scene, broker = Scene(), Refuses()
        scene.cluster._broker = broker
        fetching = scripted_brokers.Scene(1, 1)
        scene.member._rebalance = rebalance_of(scene, fetching)
        scene.coordinator.lost()
        scene.member.coordinator_lost()
        await scene.member.advance(time.monotonic() + 10)
        await until(lambda: not scene.member.is_joining)
        with pytest.raises(AuthenticationError):
            await scene.member.advance(time.monotonic() + 10)
        for _ in range(3):
            await scene.member.advance(time.monotonic() + 10)
            await asyncio.sleep(0.001)
        assert broker.searches == 1
        await scene.member.close(1)
        await fetching.fetcher.close()

    scripted_brokers.run(test())


def test_a_join_of_two_requests_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The response to the first has the member id to send in the second (KIP-394)."""
    caplog.set_level(logging.INFO, "kohort.client.group")
    kafka = VirtualKafka()

    async def test() -> None:
        await kafka.produce("t", b"")
        for _ in range(2):
            async with Consumer(
                bootstrap_servers=kafka.bootstrap_servers,
                group_id="g",
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            ) as consumer:
                consumer.subscribe(["t"])
                await consumer.getone()

    kafka.run(test())
    kafka.close()
    told = [record.getMessage() for record in caplog.records]
    assert [line for line in told if "joining" in line] == ["group g: joining: started"] * 2
