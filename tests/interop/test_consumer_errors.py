"""What a consumer raises when it cannot go on, on Kohort and on a real Kafka: named, with advice,
and within a bound.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from kohort import Consumer, RebalanceListener, TopicPartition, errors
from kohort.protocol.errors import ErrorCode
from tests.interop.same_answers.pair import Twins
from tests.support import messages as m
from tests.support.brokers.server_process import ServerProcess, free_port
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.model import Codec, Record
from tests.support.network.wire import RawClient

TIMEOUT_S = 60


@pytest.fixture(params=["kohort", "kafka"])
def broker(request: pytest.FixtureRequest, twins: Twins) -> ServerProcess:
    server: ServerProcess = getattr(twins, request.param)
    return server


@pytest.fixture
def name() -> str:
    """Name of a topic and a group."""
    return f"errors-{uuid.uuid4().hex[:12]}"


async def fill(broker: ServerProcess, topic: str, *values: bytes, codec: Codec = "none") -> None:
    """A topic of two partitions, with these in the first."""

    def create_and_produce() -> None:
        admin = admin_client(broker.bootstrap)
        create_topics(admin, NewTopic(topic, 2, 1))
        records = [Record(value) for value in values]
        ConfluentClient(broker.bootstrap).produce(topic, records, codec=codec)

    await asyncio.to_thread(create_and_produce)


@asynccontextmanager
async def consumer(
    broker: ServerProcess,
    name: str,
    **settings: Any,  # noqa: ANN401 - of many types.
) -> AsyncIterator[Consumer]:
    """Consumer of the topic and the group of that name, unless `settings` say otherwise."""
    given: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": name,
        "auto_offset_reset": "earliest",
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 200,
        **settings,
    }
    async with asyncio.timeout(TIMEOUT_S):
        async with Consumer(name, **given) as made:
            yield made


async def read_one(of: Consumer) -> bytes:
    """The next value."""
    value: bytes = (await of.getone()).value
    return value


async def joined(*consumers: Consumer) -> None:
    """Polls them all until they have partitions."""
    while not all(one.assignment() for one in consumers):
        await asyncio.gather(*(one.poll(0.1) for one in consumers))


async def error_of(of: Consumer) -> errors.ConsumerError:
    """What its polls raise, sooner or later."""
    while True:
        try:
            await of.poll(0.2)
        except errors.ConsumerError as error:
            return error


async def test_a_broker_that_is_not_there_is_unreachable() -> None:
    missing = Consumer("any", bootstrap_servers=f"127.0.0.1:{free_port()}", group_id="any")
    async with asyncio.timeout(10):
        with pytest.raises(errors.BrokerUnreachableError, match="check bootstrap_servers"):
            await missing.start()


async def test_a_host_that_does_not_exist_is_unreachable() -> None:
    missing = Consumer("any", bootstrap_servers="no-such-host.invalid:9092", group_id="any")
    async with asyncio.timeout(30):
        with pytest.raises(errors.BrokerUnreachableError, match=r"no-such-host\.invalid"):
            await missing.start()


async def test_a_topic_that_does_not_exist_is_named(broker: ServerProcess, name: str) -> None:
    async with consumer(broker, name, missing_topic_timeout_ms=500) as lone:
        error = await error_of(lone)
    assert isinstance(error, errors.UnknownTopicError)
    assert name in str(error)
    assert "missing_topic_timeout_ms" in str(error)


async def test_a_name_that_no_topic_can_have_is_not_waited_for(broker: ServerProcess) -> None:
    async with consumer(broker, "no topic/at all", missing_topic_timeout_ms=None) as lone:
        error = await error_of(lone)
    assert isinstance(error, errors.UnknownTopicError)
    assert "no topic/at all" in str(error)


async def test_of_two_with_one_instance_id_the_first_is_fenced(
    broker: ServerProcess, name: str
) -> None:
    await fill(broker, name, b"value")
    async with consumer(broker, name, group_instance_id="one") as first:
        await joined(first)
        async with consumer(broker, name, group_instance_id="one") as second:
            error, _ = await asyncio.gather(error_of(first), joined(second))
            assert isinstance(error, errors.FencedInstanceError)
            assert "group_instance_id" in str(error)
            # For good: it must not throw the other one out in its turn.
            with pytest.raises(errors.FencedInstanceError):
                await first.poll(0)
            assert not first.health().is_healthy
            assert not first.health().is_alive
            assert await second.poll(0.1) is not None
        # Unless the application says that it wants to.
        first.subscribe([name])
        while not first.health().is_ready:
            await first.poll(0.1)
        assert first.health().generation >= 0


async def test_members_without_a_common_assignor_are_told(broker: ServerProcess, name: str) -> None:
    await fill(broker, name, b"value")
    async with (
        consumer(broker, name, partition_assignment_strategy="roundrobin") as first,
        consumer(broker, name, partition_assignment_strategy="range") as second,
    ):
        await joined(first)
        error = await error_of(second)
        assert isinstance(error, errors.InconsistentProtocolError)
        assert "partition_assignment_strategy" in str(error)
        # The group that was there first has not noticed.
        await first.poll(0.1)
        assert len(first.assignment()) == 2


class Losses(RebalanceListener):
    def __init__(self) -> None:
        self.lost: list[set[TopicPartition]] = []

    def on_lost(self, partitions: AbstractSet[TopicPartition]) -> None:
        self.lost.append(set(partitions))


async def test_a_group_that_is_deleted_under_its_consumer_is_made_again(
    broker: ServerProcess, name: str
) -> None:
    await fill(broker, name, b"value")
    losses = Losses()
    async with consumer(broker, name) as lone:
        lone.subscribe([name], listener=losses)
        assert await read_one(lone) == b"value"
        before = lone.group_metadata()
        await asyncio.to_thread(delete_group, broker, name, before.member_id)
        while lone.group_metadata().member_id in {"", before.member_id}:
            await lone.poll(0.1)
        # Whatever it had committed went with the group.
        assert await read_one(lone) == b"value"
        assert losses.lost == [{TopicPartition(name, 0), TopicPartition(name, 1)}]
        await lone.commit()
        assert "MEMBERSHIP_LOST" in str(lone.health().last_rebalance_cause)


def delete_group(broker: ServerProcess, name: str, member_id: str) -> None:
    """Delete a group as an administrator does when it still has a member."""
    with RawClient(broker.port) as client:
        leave = m.LeaveGroupRequest(
            group_id=name, members=[m.MemberIdentity(member_id=member_id, group_instance_id=None)]
        )
        left = client.call(leave, 3, m.LeaveGroupResponse)
        assert [one.error_code for one in left.members] == [0]
        delete = m.DeleteGroupsRequest(groups_names=[name])
        deleted = client.call(delete, 1, m.DeleteGroupsResponse)
        assert [one.error_code for one in deleted.results] == [0]


async def test_a_message_larger_than_every_fetch_limit_comes_all_the_same(
    broker: ServerProcess, name: str
) -> None:
    """Since KIP-74 a broker gives out the first batch whatever its size."""
    large = bytes(300_000)
    await fill(broker, name, b"small", large, b"behind it")
    limits = {"fetch_max_bytes": 1_000, "max_partition_fetch_bytes": 500}
    async with consumer(broker, name, prefetch_bytes_limit=1_000, **limits) as lone:
        assert [await read_one(lone) for _ in range(3)] == [b"small", large, b"behind it"]


async def test_a_batch_that_inflates_beyond_the_limit_is_refused_with_its_place(
    broker: ServerProcess, name: str
) -> None:
    await fill(broker, name, bytes(500_000), codec="gzip")
    async with consumer(broker, name, inflated_bytes_limit=100_000) as lone:
        error = await error_of(lone)
        assert isinstance(error, errors.RecordTooLargeError)
        assert "inflated_bytes_limit" in str(error)
        assert f"{name}-0" in str(error)
        # What it says to do helps.
        lone.seek(TopicPartition(name, 0), 1)
        await asyncio.to_thread(
            ConfluentClient(broker.bootstrap).produce, name, [Record(b"behind it")]
        )
        assert await read_one(lone) == b"behind it"


async def test_a_session_that_the_broker_does_not_allow_is_refused(
    broker: ServerProcess, name: str
) -> None:
    await fill(broker, name, b"value")
    async with consumer(broker, name, session_timeout_ms=300) as lone:
        error = await error_of(lone)
    assert isinstance(error, errors.GroupError)
    assert error.code is ErrorCode.INVALID_SESSION_TIMEOUT
    assert "session_timeout_ms" in str(error)


async def test_without_a_committed_position_and_a_policy_there_is_no_place_to_begin(
    broker: ServerProcess, name: str
) -> None:
    await fill(broker, name, b"value")
    async with consumer(broker, name, auto_offset_reset="none") as lone:
        error = await error_of(lone)
        assert isinstance(error, errors.NoOffsetError)
        assert name in str(error)
        lone.seek(TopicPartition(name, 0), 0)
        lone.seek(TopicPartition(name, 1), 0)
        assert await read_one(lone) == b"value"


Waits = Callable[[Consumer], Awaitable[object]]


@pytest.mark.parametrize(
    "call",
    [
        lambda one: one.poll(1.0),
        lambda one: one.commit(),
        lambda one: one.position(TopicPartition("t", 0)),
        lambda one: one.topics(),
    ],
    ids=["poll", "commit", "position", "topics"],
)
async def test_before_the_start_and_after_the_end_every_call_says_so(call: Waits) -> None:
    idle = Consumer("t", group_id="g")
    with pytest.raises(errors.IllegalStateError, match="start"):
        await call(idle)
    await idle.stop()
    with pytest.raises(errors.ConsumerClosedError):
        await call(idle)
