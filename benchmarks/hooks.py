"""What access rules and limits add to a request, in processor time of the broker's thread.

Brokers with and without them live in one process and on one loop. Frames are fed by hand to real
connections, whose transports keep what is written: a socket costs more, and differs by more from
one time to the next, than what is looked for. They take turns, and each round gives a difference.
"""

import asyncio
import json
import statistics
import time
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from benchmarks.harness import Measured
from benchmarks.in_process import broker_here
from benchmarks.secured import produce_request, store_properties
from kohort.broker.app import Broker
from kohort.broker.core.security.acls import (
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from kohort.broker.core.security.quotas import CONSUMER, DEFAULT, PRODUCER, REQUEST, Entity
from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.service import Listener
from kohort.broker.security.client_quotas import property_of as quota_property
from kohort.broker.security.rules import property_of as rule_property
from kohort.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.protocol.messages.membership import HeartbeatRequest
from kohort.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.protocol.messages.topic_changes import CreatableTopic, CreateTopicsRequest
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support.network.wire import framed, request_body

KINDS: Final = ("rules", "limits")
"""What a broker may have that one with `nothing` has not."""

_CONNECTIONS: Final = 50
"""Clients whose requests come in one turn of the loop."""
_WAIT_S: Final = 60
_TOPICS: Final = tuple(f"t{number}" for number in range(10))


async def measure_added(directory: Path, *, rounds: int) -> Measured:
    """Microseconds, by "kind request" and by "request" for one with nothing; of the differences of
    all rounds the median, and as "... least" that of the fastest.
    """
    measured: dict[str, float] = {}
    async with AsyncExitStack() as stack:
        crowds: dict[str, FedConnections] = {}
        for kind in ("nothing", *KINDS):
            data = directory / kind
            store_properties(data, _stored(kind))
            settings = _settings(kind)
            broker = await stack.enter_async_context(broker_here(data, 0, *settings))
            crowds[kind] = FedConnections(broker)
            await crowds[kind].ask(creation(), only_one=True)
        for name, frame in requests().items():
            # The very first imports the handler, which may take until after the others.
            for crowd in crowds.values():
                await crowd.ask(frame, only_one=True)
            # What comes first makes files and caches, and has to be answered alike by all.
            answers = {kind: await crowd.ask(frame) for kind, crowd in crowds.items()}
            if len(set(answers.values())) != 1:
                raise RuntimeError(f"{name} is answered differently: {answers}")
            took: dict[str, list[float]] = {kind: [] for kind in crowds}
            order = list(crowds)
            for _ in range(rounds):
                for kind in order:
                    took[kind].append(await crowds[kind].cpu_us(frame))
                # None comes always first, or always after the same one.
                order.reverse()
            without = took["nothing"]
            measured[name] = statistics.median(without)
            for kind in KINDS:
                more = [one - other for one, other in zip(took[kind], without, strict=True)]
                measured[f"{kind} {name}"] = statistics.median(more)
                measured[f"{kind} {name} least"] = min(took[kind]) - min(without)
    return measured


def _settings(kind: str) -> tuple[str, ...]:
    # All tell clients the same address.
    same = ("advertised.listeners=PLAINTEXT://127.0.0.1:9092",)
    return (*same, "authorizer.class.name=kohort") if kind == "rules" else same


def _stored(kind: str) -> Mapping[str, str | None]:
    """Rules that let everybody in, or limits far above what is used."""
    if kind == "rules":
        return {rule_property(rule): "" for rule in _rules_for_everybody()}
    if kind == "limits":
        limits = {PRODUCER: 1e12, CONSUMER: 1e12, REQUEST: 1e6}
        return {quota_property(Entity(DEFAULT)): json.dumps(limits)}
    return {}


def _rules_for_everybody() -> list[Rule]:
    names = {
        ResourceType.TOPIC: "*",
        ResourceType.GROUP: "*",
        ResourceType.CLUSTER: "kafka-cluster",
    }
    return [
        Rule(
            kind, name, PatternType.LITERAL, "User:ANONYMOUS", "*", Operation.ALL, Permission.ALLOW
        )
        for kind, name in names.items()
    ]


def requests() -> dict[str, bytes]:
    """The frame of each request."""
    batch = memoryview(encode_batch([Record(bytes(100), None, (), 1_700_000_000_000)]))
    commit = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    committed = [OffsetCommitRequestTopic(name=_TOPICS[0], partitions=[commit])]
    fetched = [
        FetchTopic(
            topic=name,
            partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)],
        )
        for name in _TOPICS
    ]
    fetch = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=0, session_epoch=-1,
        forgotten_topics_data=[], topics=fetched,
    )  # fmt: skip
    described = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in _TOPICS])
    made: dict[str, tuple[object, int]] = {
        "Heartbeat": (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
        "OffsetCommit of one topic": (
            OffsetCommitRequest(group_id="g", member_id="", topics=committed),
            7,
        ),
        "Produce of one record": (produce_request(_TOPICS[0], batch), 9),
        "Fetch of ten topics": (fetch, 11),
        "Metadata of ten topics": (described, 9),
    }
    return {name: framed(request_body(*request)) for name, request in made.items()}


def creation() -> bytes:
    topics = [
        CreatableTopic(name=one, num_partitions=1, replication_factor=1, assignments=[], configs=[])
        for one in _TOPICS
    ]
    return framed(request_body(CreateTopicsRequest(topics=topics, timeout_ms=30_000), 5))


class _Kept(asyncio.Transport):
    """A transport without a peer."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written: list[bytes] = []
        self.connection: Connection

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.written.append(b"".join(list_of_data))

    def abort(self) -> None:
        # An `ask` that is under way is not answered.
        asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    close = abort


class FedConnections:
    """Connections of one broker whose frames come from this process, without sockets."""

    def __init__(self, broker: Broker) -> None:
        listener = Listener("PLAINTEXT")
        self._clients: list[tuple[Connection, _Kept]] = []
        for _ in range(_CONNECTIONS):
            connection, transport = Connection(broker.network, listener), _Kept()
            transport.connection = connection
            connection.connection_made(transport)
            self._clients.append((connection, transport))

    async def ask(self, frame: bytes, *, only_one: bool = False) -> bytes:
        """Let all send a request, in one turn, and return the first answer."""
        clients = self._clients[:1] if only_one else self._clients
        size = len(frame)
        for connection, transport in clients:
            transport.written.clear()
            connection.get_buffer(-1)[:size] = frame
            connection.buffer_updated(size)
        began_s = time.monotonic()
        while not all(transport.written for _, transport in clients):
            if time.monotonic() - began_s > _WAIT_S:
                raise RuntimeError("a request is not answered")
            await asyncio.sleep(0)
        return clients[0][1].written[0]

    async def cpu_us(self, frame: bytes) -> float:
        """What this thread works for each of them."""
        began_s = time.thread_time()
        await self.ask(frame)
        return (time.thread_time() - began_s) / len(self._clients) * 1e6
