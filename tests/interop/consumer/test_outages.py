"""A broker that goes away and comes back, or does not."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from kohort import TopicPartition, errors
from tests.interop.consumer.conftest import BROKERS, OVERRIDES
from tests.interop.consumer.members import (
    TIMEOUT_S,
    Members,
    Note,
    Topics,
    generation,
    read,
    values,
)
from tests.support.brokers.server_process import ServerProcess

T = TypeVar("T")


@pytest.fixture(params=["kohort", pytest.param("kafka", marks=pytest.mark.long)])
def mortal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    """A broker of the test's own."""
    kind: Any = BROKERS[request.param]
    with kind(tmp_path, overrides=OVERRIDES) as server:
        yield server


async def patiently(call: Callable[[], Awaitable[T]]) -> T:
    """What it returns, tried again while a busy machine takes longer than the second it has."""
    async with asyncio.timeout(TIMEOUT_S):
        while True:
            try:
                return await call()
            except errors.OperationTimedOutError:
                continue


async def test_a_member_gets_over_a_broker_that_is_killed_and_over_one_that_stays_away(
    mortal: ServerProcess, group: str
) -> None:
    topics = Topics(mortal.bootstrap)
    topic = topics.create(2)
    partition = TopicPartition(topic, 0)
    note = Note()
    async with Members(mortal.bootstrap, group) as members:
        consumer = await members.start(
            topic,
            listener=note,
            enable_auto_commit=False,
            default_api_timeout_ms=1_000,
            request_timeout_ms=5_000,
            session_timeout_ms=600_000,
        )
        topics.fill(topic, ["a", "b"])
        assert values(await read(consumer, 2)) == ["a", "b"]
        await patiently(consumer.commit)
        was_in = generation(consumer)

        mortal.kill()
        assert await consumer.poll(0.5) == {}
        with pytest.raises(errors.OperationTimedOutError, match="within 1 s; the last attempt"):
            await consumer.commit({partition: 1})
        with pytest.raises(errors.ConsumerError):
            await consumer.committed(partition)
        assert await consumer.poll(0.1) == {}

        mortal.start()
        topics.fill(topic, ["c"])
        assert values(await read(consumer, 1)) == ["c"]
        await members.settle(consumer, partitions=2)
        assert await patiently(lambda: consumer.committed(partition)) == 2
        # Its session has outlived the broker.
        assert generation(consumer) == was_in
        assert note.calls == [("assigned", [0, 1])]

        mortal.kill()
        began = time.monotonic()
        await consumer.stop(timeout=1)
        assert time.monotonic() - began < 15
        assert note.calls[-1] == ("revoked", [0, 1])
        with pytest.raises(errors.BrokerUnreachableError, match="bootstrap_servers"):
            async with asyncio.timeout(30):
                await members.start(topic)
    del topics._producer


async def test_stop_does_not_wait_longer_than_it_may_for_a_poll_that_commits(
    mortal: ServerProcess, group: str
) -> None:
    topics = Topics(mortal.bootstrap)
    topic = topics.create(1)
    topics.fill(topic, ["a"])
    async with Members(mortal.bootstrap, group) as members:
        consumer = await members.start(topic, enable_auto_commit=True)
        assert values(await read(consumer, 1)) == ["a"]
        os.kill(mortal.pid, signal.SIGSTOP)
        try:
            consumer.enforce_rebalance()
            poll = asyncio.create_task(consumer.poll(300))
            await asyncio.sleep(0.5)
            async with asyncio.timeout(60):
                await consumer.stop(timeout=1)
                with pytest.raises(errors.ConsumerClosedError):
                    await poll
        finally:
            os.kill(mortal.pid, signal.SIGCONT)
