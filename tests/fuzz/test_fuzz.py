"""Damaged requests against a whole broker: nothing may get out of hand, nobody may be disturbed.

Most of them go straight into the connections' protocol objects, without sockets, in one process
with the broker; `make fuzz N=5000000` sends more. A failure prints the seed and the last bytes.
"""

import asyncio
import gc
import logging
import os
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from broker.app import Broker
from broker.config import load
from broker.network.connection import Connection
from protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol.records.builder import encode_batch
from protocol.records.record import Record
from tests.broker_thread import BrokerThread
from tests.fuzz.frames import GROUPS, TOPICS, FrameFuzzer
from tests.memory_transport import MemoryTransport
from tests.wire import RawClient, framed, request_body, response_in

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "kohort.metrics.port": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    # Damaged CreateTopics requests should not fill the disk of the build machine.
    "kohort.max.partitions": "20",
    "log.segment.bytes": "1048576",
    "log.retention.bytes": "4194304",
}
PEERS = 8
CHECK_EVERY = 1_000
PATIENCE = 30
"""Cases after which a connection that is parked, or full, is given up by its client."""

SENTINEL_TOPIC = "sentinel"
GROWTH_MAX_BYTES = 96 * 1024 * 1024


class Alarms(logging.Handler):
    """Collects what must not be logged: any line that speaks of a fault of ours."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def alarms() -> Iterator[Alarms]:
    alarms = Alarms()
    logging.getLogger().addHandler(alarms)
    yield alarms
    logging.getLogger().removeHandler(alarms)


@pytest.fixture
def seed() -> int:
    """FUZZ_SEED repeats a run."""
    return int(os.environ.get("FUZZ_SEED") or time.time_ns() % 1_000_000_007)


def resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Sentinel:
    """A well-behaved client, whose records must stay what they are."""

    def __init__(self, peer: MemoryTransport) -> None:
        self._peer = peer
        self._next_offset = 0

    async def create_topic(self, name: str) -> None:
        """Create a topic, unless it is there; damaged requests may have deleted it."""
        topic = CreatableTopic(
            name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[]
        )
        create = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        response_in(await self._ask(create, 5), CreateTopicsResponse, 5)

    async def topic_ids(self) -> list[bytes]:
        """Of all topics but the own one."""
        metadata = MetadataRequest(topics=None)
        answer = response_in(await self._ask(metadata, 12), MetadataResponse, 12)
        return [topic.topic_id for topic in answer.topics if topic.name != SENTINEL_TOPIC]

    async def check(self) -> None:
        """Append a record and read it back."""
        value = b"record %d" % self._next_offset
        data = PartitionProduceData(index=0, records=encode_batch([Record(value)]))
        produce = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name=SENTINEL_TOPIC, partition_data=[data])],
        )
        produced = response_in(await self._ask(produce, 9), ProduceResponse, 9)
        ((done,),) = [topic.partition_responses for topic in produced.responses]
        assert (done.error_code, done.base_offset) == (0, self._next_offset)
        wanted = FetchPartition(
            partition=0, fetch_offset=self._next_offset, partition_max_bytes=10_000
        )
        fetch = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            topics=[FetchTopic(topic=SENTINEL_TOPIC, partitions=[wanted])],
        )
        fetched = response_in(await self._ask(fetch, 11), FetchResponse, 11)
        ((found,),) = [topic.partitions for topic in fetched.responses]
        assert found.records is not None
        assert value in bytes(found.records)
        self._next_offset += 1

    async def _ask(self, request: object, version: int) -> bytes:
        self._peer.taken.clear()
        self._peer.send(framed(request_body(request, version)))
        deadline_s = time.monotonic() + 10
        while not self._peer.taken:
            assert time.monotonic() < deadline_s, "the well-behaved client is not answered"
            await asyncio.sleep(0)
        size = int.from_bytes(self._peer.taken[:4], "big")
        assert len(self._peer.taken) == 4 + size
        return bytes(self._peer.taken[4:])


class Member:
    """Joins a group now and then, and tells the member ids that it got."""

    def __init__(self, peer: MemoryTransport, group_id: str) -> None:
        self._peer = peer
        self._group_id = group_id

    def join(self) -> None:
        protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
        request = JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=100,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        )
        self._peer.send(framed(request_body(request, 3)))

    def member_ids(self) -> list[str]:
        """Those in the answers that have come since the last look."""
        found = []
        taken, position = bytes(self._peer.taken), 0
        while position < len(taken):
            end = position + 4 + int.from_bytes(taken[position : position + 4], "big")
            answer = response_in(taken[position + 4 : end], JoinGroupResponse, 3)
            found.append(answer.member_id)
            position = end
        self._peer.taken.clear()
        return found


class Storm:
    """Peers that send what the fuzzer makes, to connections that are replaced when they end."""

    def __init__(self, broker: Broker, fuzzer: FrameFuzzer) -> None:
        self._network = broker.network
        self._fuzzer = fuzzer
        self._peers = [self.connect() for _ in range(PEERS)]
        self._ages = [0] * PEERS
        self.recent: deque[bytes] = deque(maxlen=20)
        self.answered_bytes = 0
        self.closed_count = 0

    def connect(self) -> MemoryTransport:
        return MemoryTransport(Connection(self._network))

    async def send_one(self, number: int) -> None:
        at = number % PEERS
        peer = self._peers[at]
        data = self._fuzzer.next_bytes()
        self.recent.append(data)
        start = 0
        for cut in [*self._fuzzer.cuts(len(data)), len(data)]:
            peer.send(data[start:cut])
            start = cut
        await asyncio.sleep(0)
        self.answered_bytes += len(peer.taken)
        peer.taken.clear()
        self._ages[at] += 1
        if peer.is_closing() or self._ages[at] > PATIENCE or peer.unread_bytes > 100_000:
            self.closed_count += peer.is_closing()
            peer.lose()
            self._peers[at] = self.connect()
            self._ages[at] = 0

    async def end(self) -> None:
        for peer in self._peers:
            peer.lose()
        await asyncio.sleep(0.05)


async def run_storm(broker: Broker, frame_count: int, seed: int, alarms: Alarms) -> None:
    fuzzer = FrameFuzzer(seed)
    storm = Storm(broker, fuzzer)
    sentinel = Sentinel(storm.connect())
    await sentinel.create_topic(SENTINEL_TOPIC)
    members = [Member(storm.connect(), name) for name in GROUPS[:2]]
    warm_up = max(frame_count // 4, 1)
    settled_bytes = 0
    for number in range(frame_count):
        await storm.send_one(number)
        if alarms.lines:
            sent = "\n".join(data.hex() for data in storm.recent)
            pytest.fail(f"seed {seed}, frame {number}: {alarms.lines[0]}\nsent last:\n{sent}")
        if number % CHECK_EVERY == 0:
            await sentinel.check()
            for name in TOPICS[:2]:
                await sentinel.create_topic(name)
            fuzzer.topic_ids = await sentinel.topic_ids()
            for member in members:
                fuzzer.member_ids = (member.member_ids() + fuzzer.member_ids)[:6]
                member.join()
        if number == warm_up:
            gc.collect()
            settled_bytes = resident_bytes()
    await sentinel.check()
    await storm.end()
    assert storm.answered_bytes > 10 * frame_count, "it is not all refused at the door"
    assert 0 < storm.closed_count < frame_count
    assert broker.network.connection_count == 1 + len(members)
    assert broker.network.memory.used_bytes == 0
    assert broker.network.memory.waiting_count == 0
    assert broker.network.unsent.total_bytes == 0
    assert broker.metrics.edge.waiting_count == 0
    assert broker.services.purgatory.held_bytes == 0
    parked = broker.services.purgatory.stats()
    assert {kind: parked[kind]["delayed"] for kind in ("Fetch", "Produce") if kind in parked} in (
        {},
        {"Fetch": 0},
        {"Produce": 0},
        {"Fetch": 0, "Produce": 0},
    )
    gc.collect()
    growth_bytes = resident_bytes() - settled_bytes
    assert growth_bytes < GROWTH_MAX_BYTES, f"{growth_bytes} bytes more than after a quarter"


def test_damaged_requests_harm_nobody(
    tmp_path: Path, fuzz_frames: int, seed: int, alarms: Alarms
) -> None:
    given = [f"{name}={value}" for name, value in {**SETTINGS, "log.dirs": tmp_path}.items()]
    unhandled: list[str] = []

    async def storm() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: unhandled.append(str(context)))
        async with Broker(load(overrides=given, environment={})).running() as broker:
            await run_storm(broker, fuzz_frames, seed, alarms)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(storm())
    assert not unhandled
    assert not alarms.lines


def test_damaged_requests_over_sockets_harm_nobody(
    tmp_path: Path, fuzz_frames: int, seed: int, alarms: Alarms
) -> None:
    fuzzer = FrameFuzzer(seed)
    with (
        BrokerThread(tmp_path, overrides=SETTINGS, loop_factory=uvloop.new_event_loop) as running,
        RawClient(running.port) as other,
    ):
        for _ in range(max(fuzz_frames // 10 // 20, 1)):
            with RawClient(running.port) as client:
                for _ in range(20):
                    try:
                        client.send(fuzzer.next_bytes())
                    except OSError:
                        break
            assert other.is_answered()
        edge = running.broker.metrics.edge
        deadline_s = time.monotonic() + 30
        while running.call(lambda: edge.connection_count) > 1:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        assert running.call(lambda: running.broker.network.memory.used_bytes) == 0
        assert other.is_answered()
    assert not alarms.lines, f"seed {seed}: {alarms.lines[0]}"
