"""What a fetch reads on the loop, what other threads read for it, and what happens meanwhile."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import ParamSpec, TypeVar, cast

import pytest

from kohort.broker.core.security.quotas import CONSUMER, Entity, Quotas
from kohort.broker.core.security.session import Principal
from kohort.broker.handlers.fetch import fetch
from kohort.broker.handlers.list_offsets import list_offsets
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.security.client_quotas import ClientQuotas
from kohort.broker.security.rules import Disk
from kohort.broker.storage import file_range
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.tail_cache import TailCache
from kohort.groups.steps import at_once
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kohort.testing.inline_executor import InlineExecutor
from tests.support import messages as m
from tests.support.brokers.running_topics import append, context, running_topics
from tests.support.measures.memory import traced_memory

P = ParamSpec("P")
T = TypeVar("T")

MIB = 1 << 20
TIME = 1_700_000_000_000


class HeldExecutor(InlineExecutor):
    """Threads that begin to work when they are let."""

    def __init__(self) -> None:
        self.is_held = False
        self._waiting: asyncio.Queue[Callable[[], None]] = asyncio.Queue()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        if not self.is_held:
            return super().submit(fn, *args, **kwargs)
        future: Future[T] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                done = InlineExecutor.submit(self, fn, *args, **kwargs)
                if (error := done.exception()) is not None:
                    future.set_exception(error)
                else:
                    future.set_result(done.result())

        self._waiting.put_nowait(work)
        return future

    async def let_one_go(self) -> None:
        """Do the next piece of work that somebody asks for."""
        async with asyncio.timeout(30):
            work = await self._waiting.get()
        work()

    @property
    def is_idle(self) -> bool:
        return self._waiting.empty()


def asked(offset: int, *, min_bytes: int = 1, max_wait_ms: int = 0, count: int = 1) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=50 * MIB,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=MIB)
                    for index in range(count)
                ],
            )
        ],
    )


def answered(topics: TopicManager, request: FetchRequest) -> Deferred[FetchResponse] | None:
    """The answer to come; None for one that is there at once."""
    ctx = context(topics, request, 11)
    ctx.broker.purgatory = topics._purgatory
    answer = fetch(ctx, request)
    return answer if isinstance(answer, Deferred) else None


def only(response: FetchResponse) -> PartitionData:
    ((partition,),) = [topic.partitions for topic in response.responses]
    return partition


async def filled(directory: Path, *, batches: int, size: int = 1_000, **overrides: str) -> None:
    """A topic as an earlier run left it."""
    given = [f"{name.replace('_', '.')}={value}" for name, value in overrides.items()]
    async with running_topics(directory, *given) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1)
        for number in range(batches):
            append(topic.partitions[0], bytes([number]) * size)


def partition_of(topics: TopicManager) -> Partition:
    partition = topics.partition("t", 0)
    assert partition is not None
    return partition


async def test_what_was_appended_lately_is_read_at_once(tmp_path: Path) -> None:
    executor = HeldExecutor()
    async with running_topics(tmp_path, executor=executor) as topics:
        await topics.changes.create_topic("t", partition_count=1)
        base = append(partition_of(topics)).base_offset
        executor.is_held = True
        response = fetch(context(topics, asked(base), 11), asked(base))
        assert isinstance(response, FetchResponse)
        assert len(only(response).records or b"") > 0
        executor.is_held = False


async def test_what_an_earlier_run_wrote_is_read_by_another_thread(tmp_path: Path) -> None:
    await filled(tmp_path, batches=3)
    executor = HeldExecutor()
    async with running_topics(tmp_path, executor=executor) as topics:
        executor.is_held = True
        answer = answered(topics, asked(1))
        assert answer is not None
        for _ in range(20):
            await asyncio.sleep(0)
        assert not answer.is_done
        assert not executor.is_idle
        await executor.let_one_go()
        data = bytes(only(await answer).records or b"")
        executor.is_held = False
        assert data == bytes(partition_of(topics).reads.read(1, MIB, min_one=True))


async def test_what_lies_far_behind_the_end_is_read_by_another_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As where the system cannot tell what is in memory; what is known to be there is read at once.
    monkeypatch.setattr(file_range, "_CACHESTAT", None)
    executor = HeldExecutor()
    async with running_topics(tmp_path, executor=executor) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1)
        for _ in range(12):
            append(topic.partitions[0], bytes(900_000))
        executor.is_held = True
        assert answered(topics, asked(11)) is None
        answer = answered(topics, asked(0))
        assert answer is not None
        await executor.let_one_go()
        assert len(only(await answer).records or b"") > 900_000
        executor.is_held = False


async def test_what_is_appended_during_a_read_on_another_thread_ends_the_wait(
    tmp_path: Path,
) -> None:
    await filled(tmp_path, batches=1)
    executor = HeldExecutor()
    async with running_topics(tmp_path, executor=executor) as topics:
        size = len(partition_of(topics).reads.read(0, MIB, min_one=True))
        topics._tail_cache._entries.clear()
        executor.is_held = True
        answer = answered(topics, asked(0, min_bytes=size + 1, max_wait_ms=60_000))
        assert answer is not None
        await asyncio.sleep(0)
        append(partition_of(topics), b"meanwhile")
        await executor.let_one_go()  # Finds too little,
        await executor.let_one_go()  # and reads again, because there is more.
        assert len(only(await answer).records or b"") > size
        executor.is_held = False


async def test_a_segment_that_goes_away_under_a_read_is_not_read_from(tmp_path: Path) -> None:
    await filled(tmp_path, batches=30, size=100_000, log_segment_bytes=str(MIB))
    executor = HeldExecutor()
    async with running_topics(tmp_path, executor=executor) as topics:
        partition = partition_of(topics)
        assert len(partition.log.segments) > 2
        executor.is_held = True
        answer = answered(topics, asked(1))
        assert answer is not None
        await asyncio.sleep(0)
        topics.changes.delete_records_before(partition, 25)
        await executor.let_one_go()
        assert only(await answer).error_code is ErrorCode.OFFSET_OUT_OF_RANGE
        executor.is_held = False


async def test_a_partition_that_is_deleted_under_a_read_answers_so(tmp_path: Path) -> None:
    await filled(tmp_path, batches=3)
    executor = HeldExecutor()
    async with running_topics(tmp_path, executor=executor) as topics:
        topic = topics.get("t")
        assert topic is not None
        executor.is_held = True
        answer = answered(topics, asked(1))
        assert answer is not None
        await asyncio.sleep(0)
        executor.is_held = False
        assert await topics.changes.delete_topics([topic]) == [None]
        await executor.let_one_go()
        assert only(await answer).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_many_cached_partitions_take_turns_of_the_loop(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("t", partition_count=8)
        for partition in topic.partitions:
            append(partition, bytes(500_000))
        answer = answered(topics, asked(0, count=8))
        assert answer is not None, "4 MB in one turn would be too much"
        (of_topic,) = (await answer).responses
        assert all(len(one.records or b"") > 500_000 for one in of_topic.partitions)


async def test_a_time_is_looked_up_by_another_thread(tmp_path: Path) -> None:
    await filled(tmp_path, batches=30, size=100_000, log_segment_bytes=str(MIB))
    executor = HeldExecutor()
    async with running_topics(tmp_path, executor=executor) as topics:
        request = m.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                m.ListOffsetsTopic(
                    name="t",
                    partitions=[m.ListOffsetsPartition(partition_index=0, timestamp=TIME)],
                )
            ],
        )
        for timestamp, found in ((TIME, (0, TIME)), (TIME + 1, (-1, -1)), (-3, (0, TIME))):
            request.topics[0].partitions[0].timestamp = timestamp
            executor.is_held = True
            answer = at_once(list_offsets(context(topics, request, 7), request))
            assert isinstance(answer, Deferred)
            await executor.let_one_go()
            response: m.ListOffsetsResponse = await answer
            executor.is_held = False
            ((one,),) = [topic.partitions for topic in response.topics]
            assert (one.error_code, (one.offset, one.timestamp)) == (ErrorCode.NONE, found)


async def test_what_another_thread_has_verified_is_known(tmp_path: Path) -> None:
    """The next read of the same bytes does not check them again."""
    await filled(tmp_path, batches=3)
    async with running_topics(tmp_path) as topics:
        segment = partition_of(topics).log.segments[0]
        assert not segment.is_verified(0, segment.size_bytes)
        answer = answered(topics, asked(0))
        assert answer is not None
        await answer
        assert segment.is_verified(0, segment.size_bytes)


async def test_a_fetch_that_waits_holds_no_records(tmp_path: Path) -> None:
    """A client may ask for 50 MB at least, and there may be 49."""
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1)
        append(topic.partitions[0], bytes(500_000))
        topics._tail_cache = TailCache(bytes_max=0)
        partition_of(topics).reads._tail_cache = topics._tail_cache
        with traced_memory() as taken:
            answer = answered(topics, asked(0, min_bytes=MIB, max_wait_ms=60_000))
            assert answer is not None
            held_bytes = taken()
        assert not answer.is_done
        assert held_bytes < 100_000


async def test_what_one_gets_at_once_is_by_its_own_limit_as_it_is_now(tmp_path: Path) -> None:
    async with running_topics(tmp_path) as topics:
        topic = await topics.changes.create_topic("t", partition_count=1)
        for _ in range(3):
            append(topic.partitions[0], bytes(40_000))
        ctx = context(topics, asked(0), 11)
        quotas = ctx.broker.quotas = ClientQuotas(
            Quotas(), topics.disk.data.store, cast("Disk", None)
        )

        def limit(user: str, bytes_a_second: float) -> None:
            quotas.quotas.set(Entity(user), {CONSUMER: bytes_a_second})
            quotas.is_limiting = True

        def batch_count(user: str, *, min_bytes: int = 1) -> int:
            session = ctx.connection.session
            if session.principal.name != user:
                ctx.connection.session = session._replace(principal=Principal("User", user))
            answer = fetch(ctx, asked(0, min_bytes=min_bytes, max_wait_ms=1_000))
            assert isinstance(answer, FetchResponse)
            return len(only(answer).records or b"") // 40_000

        assert batch_count("u") == 3
        limit("u", 5_000)
        limit("v", 10_000)
        for _ in range(2):
            assert [batch_count("u"), batch_count("u")] == [1, 1]
            assert [batch_count("v"), batch_count("v")] == [2, 2]
            assert batch_count("w") == 3
        # It does not wait for what it could not get.
        limit("x", 1_000)
        assert batch_count("x", min_bytes=50_000) == 1
        limit("v", 1e9)
        assert [batch_count("v"), batch_count("u")] == [3, 1]
