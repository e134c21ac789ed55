"""The heartbeat thread against a real broker, while its consumer's loop is held up."""

import asyncio
import time
from contextlib import suppress
from typing import Any

import pytest

from kohort import Consumer, ConsumerRecord
from kohort.client.config import ConsumerConfig
from kohort.client.core.backoff import Backoff
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.heartbeat import FindingKind, HeartbeatRules
from kohort.client.core.group.identity import Identity
from kohort.client.group.heartbeat_thread import HeartbeatThread
from kohort.client.net.address import Address
from kohort.protocol.errors import ErrorCode
from kohort.testing import Kafka
from tests.support import messages as m
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

SESSION_MS = 3_000
"""Fifteen heartbeats long, so that a busy machine does not end it."""
ENDED_WITHIN_S = 60
"""It takes a moment where there is nothing else to do."""


@pytest.fixture
def broker(kafka_module: Kafka) -> Kafka:
    return kafka_module


def join(broker: Kafka, group_id: str) -> Identity:
    """Become the only member of a group, by hand."""
    with RawClient(broker.port) as client:
        request = m.JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=[m.JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        # Before version 4 no second leg is asked for.
        joined = client.call(request, 3, m.JoinGroupResponse)
        identity = Identity(joined.generation_id, joined.member_id, "range")
        sync = m.SyncGroupRequest(
            group_id=group_id,
            generation_id=identity.generation,
            member_id=identity.member_id,
            assignments=[],
        )
        assert not client.call(sync, 1, m.SyncGroupResponse).error_code
    return identity


def thread_for(
    group_id: str, told: asyncio.Event, *, max_poll_interval_ms: int = 60_000
) -> HeartbeatThread:
    settings = MembershipConfig(group_id, None, SESSION_MS, 200, max_poll_interval_ms)
    rules = HeartbeatRules(settings, Backoff(50, 200, lambda: 0.5))
    config = ConsumerConfig(group_id=group_id, request_timeout_ms=1_000)
    return HeartbeatThread(config, rules, loop=asyncio.get_running_loop(), on_findings=told.set)


def wait_for_state(broker: Kafka, group_id: str, state: str) -> None:
    """With the loop held up, as in an application that computes."""
    wait_until(lambda: broker.group(group_id).state == state, f"{group_id} to become {state}")


async def test_a_member_outlives_a_loop_that_is_held_up_for_longer_than_a_session(
    broker: Kafka,
) -> None:
    thread = thread_for("held-up", asyncio.Event())
    address = Address("127.0.0.1", broker.port)
    thread.start()
    thread.polled()
    thread.begin(join(broker, "held-up"), address, [address])
    time.sleep(1.5 * SESSION_MS / 1000)  # noqa: ASYNC251 - that is what is tested.
    assert broker.group("held-up").state == "Stable"
    assert thread.last_success_ms is not None
    assert thread.take_findings() == []
    thread.stop()
    assert await thread.wait_stopped(ENDED_WITHIN_S)
    # So it was the thread.
    wait_for_state(broker, "held-up", "Empty")


async def test_it_is_no_more_when_it_was_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the machine takes to go on with it after it has told of its end."""
    loop = asyncio.get_running_loop()
    notify = loop.call_soon_threadsafe

    def notify_and_be_held_up(*args: Any) -> None:  # noqa: ANN401 - as the loop takes them.
        notify(*args)
        time.sleep(0.2)

    monkeypatch.setattr(loop, "call_soon_threadsafe", notify_and_be_held_up)
    thread = thread_for("no-more", asyncio.Event())
    thread.start()
    thread.stop()
    assert await thread.wait_stopped(5)
    assert not thread._thread.is_alive()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_run_begins_no_record_after_a_handler_that_blocked_until_its_member_had_left(
    broker: Kafka, protocol: str
) -> None:
    name = f"blocked-{protocol}"
    broker.create_topic(name, partitions=1)
    for _ in range(2):
        broker.produce(name, b"")
    begun: list[int] = []

    def handle(record: ConsumerRecord[Any, Any]) -> None:
        begun.append(record.offset)
        if len(begun) == 1:
            wait_for_state(broker, name, "Empty")
        if len(begun) == 3:
            consumer.end_run()

    async with (
        asyncio.timeout(ENDED_WITHIN_S),
        Consumer(
            name,
            bootstrap_servers=broker.bootstrap_servers,
            group_id=name,
            group_protocol=protocol,
            auto_offset_reset="earliest",
            max_poll_interval_ms=2_000,
        ) as consumer,
    ):
        await consumer.run(handle)
    # Its next membership begins with the same record.
    assert begun[:2] == [0, 0]


async def test_what_it_learns_reaches_the_loop(broker: Kafka) -> None:
    told = asyncio.Event()
    thread = thread_for("moved-on", told)
    address = Address("127.0.0.1", broker.port)
    identity = join(broker, "moved-on")
    thread.start()
    thread.polled()
    thread.begin(identity._replace(member_id="somebody-else"), address, [address])
    async with asyncio.timeout(60):
        await told.wait()
    assert [finding.kind for finding in thread.take_findings()] == [FindingKind.MEMBERSHIP_LOST]
    thread.stop()
    assert await thread.wait_stopped(ENDED_WITHIN_S)


async def test_a_consumer_that_does_not_poll_leaves_its_group_at_once(
    broker: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    told = asyncio.Event()
    thread = thread_for("no-poll", told, max_poll_interval_ms=500)
    address = Address("127.0.0.1", broker.port)
    thread.start()
    thread.polled()
    thread.begin(join(broker, "no-poll"), address, [address])
    async with asyncio.timeout(60):
        await told.wait()
    assert [finding.kind for finding in thread.take_findings()] == [FindingKind.POLL_EXPIRED]
    assert broker.group("no-poll").state == "Empty"
    assert "max_poll_interval_ms" in caplog.text
    thread.stop()
    assert await thread.wait_stopped(ENDED_WITHIN_S)


async def test_it_finds_its_coordinator_again_by_itself(broker: Kafka) -> None:
    """The address that it had is a broker's that is gone; another one knows."""
    thread = thread_for("searching", asyncio.Event())
    address = Address("127.0.0.1", broker.port)
    gone = Address("127.0.0.1", 1)
    thread.start()
    thread.polled()
    thread.begin(join(broker, "searching"), gone, [gone, address])
    # The loop has no part in it.
    wait_until(lambda: thread.last_success_ms is not None, "its coordinator to be found")
    assert broker.group("searching").state == "Stable"
    thread.stop()
    assert await thread.wait_stopped(ENDED_WITHIN_S)


async def test_an_unexpected_error_costs_one_heartbeat_and_not_the_membership(
    broker: Kafka, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A thread that ended would take the membership with it, unnoticed."""
    send = HeartbeatThread._send_heartbeat
    attempts = 0

    async def fails_at_first(thread: HeartbeatThread, identity: Identity) -> ErrorCode:
        nonlocal attempts
        attempts += 1
        if attempts <= 2:
            raise ZeroDivisionError("nobody expected that")
        return await send(thread, identity)

    monkeypatch.setattr(HeartbeatThread, "_send_heartbeat", fails_at_first)
    thread = thread_for("surprised", asyncio.Event())
    address = Address("127.0.0.1", broker.port)
    thread.start()
    thread.polled()
    thread.begin(join(broker, "surprised"), address, [address])
    async with asyncio.timeout(60):
        while thread.last_success_ms is None:  # noqa: ASYNC110 - it is another thread that acts.
            await asyncio.sleep(0.05)
    assert attempts >= 3
    assert caplog.text.count("ZeroDivisionError: nobody expected that") == 2
    thread.stop()
    assert await thread.wait_stopped(ENDED_WITHIN_S)


async def test_it_stops_while_it_waits_for_an_answer_that_does_not_come() -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            await reader.read(100)
            await reader.read()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        address = Address(*server.sockets[0].getsockname()[:2])
        thread = thread_for("silent", asyncio.Event())
        thread.start()
        thread.polled()
        thread.begin(Identity(1, "m", "range"), address, [address])
        await asyncio.sleep(0.5)
        thread.stop()
        assert await thread.wait_stopped(ENDED_WITHIN_S)


def test_the_thread_of_a_consumer_that_was_not_closed_ends_with_its_loop(
    broker: Kafka,
) -> None:
    address = Address("127.0.0.1", broker.port)

    async def forget() -> HeartbeatThread:
        thread = thread_for("forgotten", asyncio.Event())
        thread.start()
        thread.polled()
        thread.begin(join(broker, "forgotten"), address, [address])
        return thread

    thread = asyncio.run(forget())
    thread._thread.join(ENDED_WITHIN_S)
    assert not thread._thread.is_alive()
