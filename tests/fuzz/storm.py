"""A storm of damaged requests in one process with a whole broker, without sockets."""

import asyncio
import gc
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

import uvloop

from kohort.broker.app import Broker
from kohort.broker.config import load
from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.service import Listener
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.fuzz.frames import GROUPS, FrameFuzzer
from tests.support import messages as m
from tests.support.network.memory_transport import MemoryTransport
from tests.support.network.requests import creation, fetch_request, produce_request
from tests.support.network.wire import framed, request_body, response_in

SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "kohort.metrics.port": "-1",
    "kohort.console.port": "-1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    # Damaged CreateTopics requests should not fill the disk of the build machine.
    "kohort.max.partitions": "20",
    "log.segment.bytes": "1048576",
    "log.retention.bytes": "4194304",
    "log.cleaner.backoff.ms": "100",
}
QUICKLY_COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "50",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str((1 << 63) - 1),
}
COMPACTED_TOPICS: Mapping[str, Mapping[str, str]] = {
    "compacted": {name: QUICKLY_COMPACTED[name] for name in list(QUICKLY_COMPACTED)[:3]},
    "compacted-for-ever": QUICKLY_COMPACTED,
}
"""Topics whose tombstones have the timestamps that a clock would not have."""
NO_CONFIGS: Mapping[str, str] = {}
FAR_TIMESTAMPS = (-(1 << 62), -2, -1, 0)
BEFORE_NOW_MS = (0, (1 << 63) - 60_001, 1 << 62)
"""Timestamps of the compacted topics' tombstones: those, and times so long before now."""

PEERS = 8
CHECK_EVERY = 1_000
ROUNDS_UNTIL_COMPACTED = 10
PATIENCE = 30
"""Cases after which a connection that is parked, or full, is given up by its client."""

SENTINEL_TOPIC = "sentinel"
SETTLED_WITHIN_S = 60


class Alarms(logging.Handler):
    """Collects what must not be logged: any line about an internal error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Sentinel:
    """A well-behaved client, whose records must stay what they are."""

    def __init__(self, peer: MemoryTransport) -> None:
        self._peer = peer
        self._next_offset = 0

    async def create_topic(self, name: str, configs: Mapping[str, str] = NO_CONFIGS) -> None:
        """Create a topic, unless it is there; damaged requests may have deleted it."""
        create = creation(name, partitions=2, configs=configs)
        response_in(await self._ask(create, 5), m.CreateTopicsResponse, 5)

    async def delete_keys(self) -> None:
        """Write values and tombstones to the compacted topics, of another time in each round."""
        dates = [*FAR_TIMESTAMPS, *(int(time.time() * 1000) - ms for ms in BEFORE_NOW_MS)]
        timestamp = dates[self._next_offset % len(dates)]
        for name, configs in COMPACTED_TOPICS.items():
            await self.create_topic(name, configs)
            for value in (b"value", None):
                done = await self._produce(
                    name, encode_batch([Record(value, b"key", (), timestamp)])
                )
                assert not done.error_code, f"a record of {timestamp} is refused"

    async def topic_ids(self) -> list[bytes]:
        """Ids of all topics but the sentinel topic."""
        metadata = m.MetadataRequest(topics=None)
        answer = response_in(await self._ask(metadata, 12), m.MetadataResponse, 12)
        return [topic.topic_id for topic in answer.topics if topic.name != SENTINEL_TOPIC]

    async def check(self) -> None:
        """Append a record and read it back."""
        value = b"record %d" % self._next_offset
        done = await self._produce(SENTINEL_TOPIC, encode_batch([Record(value)]))
        assert (done.error_code, done.base_offset) == (0, self._next_offset)
        fetch = fetch_request(SENTINEL_TOPIC, self._next_offset, max_bytes=10_000)
        fetched = response_in(await self._ask(fetch, 11), m.FetchResponse, 11)
        ((found,),) = [topic.partitions for topic in fetched.responses]
        assert found.records is not None
        assert value in bytes(found.records)
        self._next_offset += 1

    async def _produce(self, topic: str, batch: bytes) -> m.PartitionProduceResponse:
        answer = await self._ask(produce_request(topic, batch), 9)
        produced = response_in(answer, m.ProduceResponse, 9)
        ((done,),) = [topic.partition_responses for topic in produced.responses]
        return done

    async def _ask(self, request: object, version: int) -> bytes:
        self._peer.taken.clear()
        self._peer.send(framed(request_body(request, version)))
        deadline_s = time.monotonic() + 60
        while not self._peer.taken:
            assert time.monotonic() < deadline_s, "the well-behaved client is not answered"
            await asyncio.sleep(0)
        size = int.from_bytes(self._peer.taken[:4], "big")
        assert len(self._peer.taken) == 4 + size
        return bytes(self._peer.taken[4:])


class Member:
    """Joins a group now and then, and tells the member ids that it got."""

    def __init__(self, peer: MemoryTransport, group_id: str) -> None:
        self.peer = peer
        self._group_id = group_id

    def join(self) -> None:
        protocols = [m.JoinGroupRequestProtocol(name="range", metadata=b"")]
        request = m.JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=100,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        )
        self.peer.send(framed(request_body(request, 3)))

    def member_ids(self) -> list[str]:
        """Member ids in the answers that have come since the last look."""
        found = []
        taken, position = bytes(self.peer.taken), 0
        while position < len(taken):
            end = position + 4 + int.from_bytes(taken[position : position + 4], "big")
            answer = response_in(taken[position + 4 : end], m.JoinGroupResponse, 3)
            found.append(answer.member_id)
            position = end
        self.peer.taken.clear()
        return found


class Storm:
    """Peers that send what the fuzzer makes, to connections that are replaced when they end."""

    def __init__(self, broker: Broker, fuzzer: FrameFuzzer) -> None:
        self._network = broker.network
        # There is no socket that the kernel could send files to.
        self._network.sends_files = False
        self._fuzzer = fuzzer
        self._peers = [self.connect() for _ in range(PEERS)]
        self._ages = [0] * PEERS
        self.recent: deque[bytes] = deque(maxlen=20)
        self.answered_bytes = 0
        self.closed_count = 0

    def connect(self) -> MemoryTransport:
        return MemoryTransport(Connection(self._network, Listener("PLAINTEXT")))

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

    def end(self) -> None:
        for peer in self._peers:
            peer.lose()


async def run_storm(broker: Broker, frame_count: int, fuzzer: FrameFuzzer, alarms: Alarms) -> int:
    """How many bytes the process has grown by since the first quarter."""
    storm = Storm(broker, fuzzer)
    sentinel = Sentinel(storm.connect())
    await sentinel.create_topic(SENTINEL_TOPIC)
    members = [Member(storm.connect(), name) for name in GROUPS[:2]]
    compaction = broker.services.topics.compaction
    compacted: set[str] = set()
    warm_up = max(frame_count // 4, 1)
    settled_bytes = 0
    for number in range(frame_count):
        await storm.send_one(number)
        if alarms.lines:
            sent = "\n".join(data.hex() for data in storm.recent)
            raise AssertionError(f"frame {number}: {alarms.lines[0]}\nsent last:\n{sent}")
        if number % CHECK_EVERY == 0:
            await sentinel.check()
            await sentinel.delete_keys()
            compacted |= {name for name, _ in compaction._clean_up_to}
            for name in fuzzer.topics:
                await sentinel.create_topic(name)
            fuzzer.topic_ids = await sentinel.topic_ids()
            for member in members:
                fuzzer.member_ids = (member.member_ids() + fuzzer.member_ids)[:6]
                member.join()
        if number == warm_up:
            gc.collect()
            settled_bytes = resident_bytes()
    await sentinel.check()
    assert storm.answered_bytes > 10 * frame_count, "it is nearly all refused at the door"
    assert compaction.failure_count == 0
    if frame_count >= ROUNDS_UNTIL_COMPACTED * CHECK_EVERY:
        assert compacted >= set(COMPACTED_TOPICS)
    assert 0 < storm.closed_count < frame_count, f"{storm.closed_count} connections were closed"
    storm.end()
    for member in members:
        member.peer.lose()
    await wait_nothing_held(lambda: held(broker, connections=1))
    gc.collect()
    return resident_bytes() - settled_bytes


def held(broker: Broker, *, connections: int) -> dict[str, int]:
    """What must come to 0 when all have left but that many connections that wait for nothing."""
    network, purgatory = broker.network, broker.services.purgatory
    delayed = {f"delayed {kind}": of["delayed"] for kind, of in purgatory.stats().items()}
    return {
        "connections too many": network.connection_count - connections,
        "bytes of requests": network.memory.used_bytes,
        "requests that wait for memory": len(network.memory.waiting),
        "unsent bytes": network.unsent.total_bytes,
        "requests that wait": broker.metrics.edge.waiting_count,
        "bytes of what is delayed": purgatory.held_bytes,
        "faults of groups": broker.services.groups.host.stats()["faults"],
        **{name: count for name, count in delayed.items() if name in PARKED_FOR_A_CLIENT},
    }


PARKED_FOR_A_CLIENT = {"delayed Fetch", "delayed Produce"}
"""Joins go on for the groups' sake, and heartbeats are what groups wait for."""


async def wait_nothing_held(counts: Callable[[], Mapping[str, int]]) -> None:
    deadline_s = time.monotonic() + SETTLED_WITHIN_S
    while left := {name: count for name, count in counts().items() if count}:
        assert time.monotonic() < deadline_s, f"held after all have left: {left}"
        await asyncio.sleep(0.02)


def storm_in_this_process(directory: Path, frame_count: int, seed: int) -> int:
    """Do what `run_storm` does, with a broker of its own; any failure tells the seed."""
    given = [f"{name}={value}" for name, value in {**SETTINGS, "log.dirs": directory}.items()]
    alarms = Alarms()
    logging.getLogger().addHandler(alarms)
    unhandled: list[str] = []

    async def storm() -> int:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: unhandled.append(str(context)))
        async with Broker(load(overrides=given, environment={})).running() as broker:
            return await run_storm(broker, frame_count, FrameFuzzer(seed), alarms)

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            growth_bytes = runner.run(storm())
        assert not unhandled, unhandled[0]
        assert not alarms.lines, alarms.lines[0]
    except Exception as error:
        raise AssertionError(f"FUZZ_SEED={seed} repeats this: {error}") from error
    return growth_bytes
