"""The largest legal request of every API, and how long it blocks the event loop.

A broker runs in a process of its own, while 1,000 members send heartbeats. For each array of each
API's request, two requests are sent: one with nearly the maximum of elements, and one with nearly
the maximum of text. A figure is the longest event loop iteration during its execution, in CPU time
of the loop's thread, so other processes do not count. A request that closes its connection is an
error.
"""

import asyncio
import itertools
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.harness import Bench, Measured, Row, progress
from benchmarks.in_process import broker_here, run_apart
from benchmarks.members import Members
from kohort.broker.dispatch.registry import Api
from kohort.broker.handlers import load_handlers
from kohort.protocol.codec import encode_versioned
from kohort.protocol.limits import REQUEST_BYTES_MAX
from kohort.protocol.message import schema_of
from kohort.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from kohort.protocol.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from kohort.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kohort.protocol.messages.topic_changes import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kohort.protocol.schema import Field
from kohort.protocol.types import WireType
from tests.support.network.wire import RawClient, framed, request_body

TITLE: Final = "Longest event loop iteration by request"

LIMIT_MS: Final = 50
_ELEMENTS: Final = 49_000
_TEXT_CHARS: Final = 2_000
_PARTITIONS: Final = 9_000
_GROUPS: Final = 10_000
_MEMBERS: Final = 1_000
_HEARTBEAT_S: Final = 3.0
_BYTES: Final = REQUEST_BYTES_MAX - 100_000
_TIMEOUT_S: Final = 600


def measure(bench: Bench) -> Iterable[Row]:
    work = partial(_measure_all, scale=bench.scale)

    def measure_once() -> Measured:
        directory = bench.directory / "largest"
        shutil.rmtree(directory, ignore_errors=True)
        return run_apart(work, directory)

    for name, figure in bench.measure_ours(measure_once).items():
        yield Row(name, "ms", figure, limit=LIMIT_MS)


class IterationMeter:
    """The longest event loop iteration, in CPU time of the loop's thread."""

    def __init__(self) -> None:
        self._began_s = 0.0
        self._longest_s = 0.0
        self._is_stopped = False

    def start(self) -> None:
        self._began_s = time.thread_time()
        asyncio.get_running_loop().call_soon(self._look)

    def stop(self) -> None:
        self._is_stopped = True

    def take_longest_ms(self) -> float:
        longest_s, self._longest_s = self._longest_s, 0.0
        return longest_s * 1e3

    def _look(self) -> None:
        now_s = time.thread_time()
        self._longest_s = max(self._longest_s, now_s - self._began_s)
        self._began_s = now_s
        if not self._is_stopped:
            asyncio.get_running_loop().call_soon(self._look)


async def _measure_all(directory: Path, *, scale: float = 1.0, only: str = "") -> Measured:
    async with broker_here(directory, 1_000, "kohort.max.partitions=20000") as broker:
        members = Members(broker, 10, max(1, int(_MEMBERS * scale / 10)))
        await members.come()
        meter = IterationMeter()
        meter.start()
        port = broker.endpoint.port
        ended = threading.Event()
        beating = asyncio.create_task(asyncio.to_thread(_beat, port, members, ended))
        try:
            return await asyncio.to_thread(_ask_all, port, meter, scale, only)
        finally:
            meter.stop()
            ended.set()
            await beating


def _beat(port: int, members: Members, ended: threading.Event) -> None:
    """Send the heartbeats of all members, spread evenly, until `ended` is set."""
    with RawClient(port, timeout_s=_TIMEOUT_S) as client:
        frames = [
            framed(
                request_body(
                    HeartbeatRequest(
                        group_id=group_id,
                        generation_id=joined.generation,
                        member_id=joined.member_id,
                    ),
                    4,
                )
            )
            for group_id, joined in members.joined
        ]
        each = _HEARTBEAT_S / len(frames)
        for frame in itertools.cycle(frames):
            client.send(frame)
            client.receive()
            if ended.wait(each):
                return


def _ask_all(port: int, meter: IterationMeter, scale: float, only: str) -> Measured:
    measured: dict[str, float] = {}
    partitions, groups = int(_PARTITIONS * scale), int(_GROUPS * scale)
    with RawClient(port, timeout_s=_TIMEOUT_S) as client:
        _prepare(client, partitions, groups)
        requests = _largest(partitions, int(_ELEMENTS * scale), int(_BYTES * scale))
        for name, request, version in requests:
            if only and only not in name:
                continue
            frame = framed(request_body(request, version))
            del request
            time.sleep(0.1)
            meter.take_longest_ms()
            try:
                client.send(frame)
                client.receive()
            except OSError as error:
                raise RuntimeError(f"{name} closed the connection") from error
            time.sleep(0.05)  # Work that the request leaves to later iterations counts as well.
            measured[name] = meter.take_longest_ms()
            progress(f"  {name}: {measured[name]:.1f} ms, {len(frame):,} bytes")
    return measured


def _prepare(client: RawClient, partitions: int, groups: int) -> None:
    topic = CreatableTopic(
        name="p", num_partitions=partitions, replication_factor=1, assignments=[], configs=[]
    )
    client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 5)
    commits = [
        framed(request_body(_commit(f"group-{number:05d}", 1, partitions), 8))
        for number in range(groups)
    ]
    for begin in range(0, len(commits), 50):
        client.send(b"".join(commits[begin : begin + 50]))
        for _ in commits[begin : begin + 50]:
            client.receive()


def _commit(group_id: str, count: int, partitions: int, *, topics: int = 1) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name="p" if topics == 1 else f"unknown-{topic}",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index % partitions,
                        committed_offset=1,
                        committed_metadata="",
                    )
                    for index in range(count)
                ],
            )
            for topic in range(topics)
        ],
    )


def _largest(partitions: int, elements: int, byte_count: int) -> Iterator[tuple[str, Any, int]]:
    """Yield (name, request, version), those that delete groups and topics last."""
    for version in (8, 9):
        commit = _commit("many", elements, partitions)
        yield f"OffsetCommit v{version}, {elements:,} partitions", commit, version
        commit = _commit("many", 1, partitions, topics=elements // 2)
        yield f"OffsetCommit v{version}, {elements // 2:,} unknown topics", commit, version
    apis = sorted(load_handlers().values(), key=lambda api: api.name.startswith("Delete"))
    for api in apis:
        version = api.versions.high
        count = min(elements, schema_of(api.request).elements_max - 10)
        filler = _Filler(version, partitions)
        for path in _array_paths(api.request, version):
            name = f"{api.name} v{version}, {'.'.join(path)}"
            yield name, filler.fill(api.request, path, count), version
        yield from _long_texts(api, partitions, byte_count)
    wanted = [
        CreatableTopic(
            name=f"new-{number}",
            num_partitions=1,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name="retention.ms", value=str(number))],
        )
        for number in range(partitions)
    ]
    for is_only_validated in (True, False):
        create = CreateTopicsRequest(
            topics=wanted, timeout_ms=60_000, validate_only=is_only_validated
        )
        yield f"CreateTopics v7, {partitions:,} configs, {is_only_validated}", create, 7
    names = [topic.name for topic in wanted]
    consumer = ConsumerGroupHeartbeatRequest(
        group_id="consumers",
        member_id="one",
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=names,
        topic_partitions=[],
    )
    yield f"ConsumerGroupHeartbeat v1, {partitions:,} existing topics", consumer, 1
    share = ShareGroupHeartbeatRequest(
        group_id="share", member_id="one", member_epoch=0, subscribed_topic_names=names
    )
    yield f"ShareGroupHeartbeat v1, {partitions:,} existing topics", share, 1
    topics = ConsumerProtocolSubscription(topics=[f"unknown-{n}" for n in range(elements)])
    for kind, count, metadata in (
        ("zeros", 5, bytes(byte_count // 5)),
        (f"{elements:,} topics", 1, encode_versioned(topics, 0)),
    ):
        join = JoinGroupRequest(
            group_id=f"large {kind}",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=f"range-{n}", metadata=metadata) for n in range(count)
            ],
        )
        yield f"JoinGroup v3, {count} x {len(metadata):,} bytes, {kind}", join, 3


def _long_texts(api: Api, partitions: int, byte_count: int) -> Iterator[tuple[str, Any, int]]:
    """Yield, for each array, a request of the newest version in which its elements have texts."""
    done: set[tuple[str, ...]] = set()
    for version in range(api.versions.high, api.versions.low - 1, -1):
        filler = _Filler(version, partitions, _TEXT_CHARS)
        for path in _array_paths(api.request, version):
            sample = request_body(filler.fill(api.request, path, 100), version)
            if path not in done and len(sample) > 20 * _TEXT_CHARS:
                done.add(path)
                name = f"{api.name} v{version}, {'.'.join(path)}, long texts"
                most = min(byte_count, (schema_of(api.request).bytes_max or 0) - 10_000)
                request = filler.fill(api.request, path, 100 * most // len(sample))
                yield name, request, version


def _array_paths(message: type, version: int) -> Iterator[tuple[str, ...]]:
    for one in schema_of(message).fields:
        if version in one.versions and not one.is_tagged(version):
            if one.is_array:
                yield (one.name,)
            if not isinstance(one.kind, WireType):
                for path in _array_paths(one.kind, version):
                    yield (one.name, *path)


_TEXTS: Final[dict[str, Callable[[int], str | None]]] = {
    "group_id": "group-{:05d}".format,
    "groups": "group-{:05d}".format,
    "groups_names": "group-{:05d}".format,
    "coordinator_keys": "group-{:05d}".format,
    "key": "group-{:05d}".format,
    "group_instance_id": lambda _: None,
    "transactional_id": "id-{}".format,
    "transactional_ids": "id-{}".format,
    "resource_name": "unknown-{}".format,
}
_NUMBERS: Final = {
    "resource_type": 2,
    "resource_type_filter": 2,
    "resource_pattern_type": 3,
    "pattern_type": 3,
    "pattern_type_filter": 3,
    "operation": 3,
    "permission_type": 3,
    "timeout_ms": 60_000,
    "max_wait_ms": 100,
    "max_wait_time_ms": 100,
    "min_bytes": 1,
    "max_bytes": 1 << 20,
    "partition_max_bytes": 1 << 10,
    "session_timeout_ms": 30_000,
    "rebalance_timeout_ms": 30_000,
    "timestamp": -1,
    "producer_id": 1,
    "num_partitions": 1,
    "replication_factor": 1,
    "acks": -1,
    "replica_id": -1,
    "generation_id": -1,
    "generation_id_or_member_epoch": -1,
    "current_leader_epoch": -1,
    "session_epoch": -1,
    "iterations": 4096,
    "mechanism": 1,
    "response_partition_limit": 2_000,
    "validate_only": True,
}


class _Filler:
    """Makes requests with one large array. Names in large arrays are those of unknown topics."""

    def __init__(self, version: int, partitions: int, text_chars: int = 0) -> None:
        """`text_chars` is the length to which texts in large arrays are padded."""
        self._version = version
        self._partitions = partitions
        self._text_chars = text_chars

    def fill(self, message: type, path: tuple[str, ...], count: int, number: int = -1) -> Any:  # noqa: ANN401
        """Make the message with `count` elements in the array at `path`; or, as element `number` of
        an array, with one element in each of its own arrays.
        """
        values = {}
        for one in schema_of(message).fields:
            if self._version not in one.versions or one.is_tagged(self._version):
                continue
            values[one.name] = self._value(one, path, count, number)
        return message(**values)

    def _value(  # noqa: PLR0911
        self, one: Field, path: tuple[str, ...], count: int, number: int
    ) -> Any:  # noqa: ANN401
        if not one.is_array:
            if isinstance(one.kind, WireType):
                return self._plain(one, one.kind, number)
            if self._version in one.nullable:
                return None
            return self.fill(one.kind, path[1:] if path[:1] == (one.name,) else (), count, number)
        if path[:1] == (one.name,):
            if len(path) > 1:
                assert not isinstance(one.kind, WireType)
                return [self.fill(one.kind, path[1:], count)]
            if isinstance(one.kind, WireType):
                return [self._plain(one, one.kind, index) for index in range(count)]
            count //= 1 + _inner_count(one.kind, self._version)
            return [self.fill(one.kind, (), 0, index) for index in range(count)]
        if path or number < 0:
            return []
        if isinstance(one.kind, WireType):
            return [self._plain(one, one.kind, number)]
        return [self.fill(one.kind, (), 0, number)]

    def _plain(self, one: Field, kind: WireType, number: int) -> Any:  # noqa: ANN401, PLR0911
        index = max(number, 0)
        if kind.name == "string":
            text = _TEXTS.get(one.name, "unknown-{}".format)(index)
            if number < 0:
                return text if one.name in _TEXTS else "p"
            return text and text.ljust(self._text_chars, "x")
        if one.name in _NUMBERS:
            return _NUMBERS[one.name]
        if kind.name == "int32":
            return index % self._partitions
        if kind.name == "uuid":
            return (index + 1).to_bytes(16, "big")
        if kind.name == "bytes":
            return b"bytes"
        return kind.zero


def _inner_count(message: type, version: int) -> int:
    return sum(
        one.is_array
        * (1 + (0 if isinstance(one.kind, WireType) else _inner_count(one.kind, version)))
        for one in schema_of(message).fields
        if version in one.versions and not one.is_tagged(version)
    )


def _main() -> None:
    """`python -m benchmarks.largest [PART OF A NAME]`: measure once."""
    only = sys.argv[1] if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory() as directory:
        run_apart(partial(_measure_all, only=only), Path(directory) / "data")


if __name__ == "__main__":
    _main()
