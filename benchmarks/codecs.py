"""What the codecs take for the messages that a broker sees most: requests read, answers written.

Each message is checked to come back as it was before it is measured. The figure is the fastest of
several rounds of many calls: the rest is what else the machine did. The answer to a group's leader,
by far the largest, is what a group gives and the handler makes of it: the compiled codec takes
objects of one kind only, and the figure should tell if it were given others.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from benchmarks.harness import Bench, Measured, Row
from kohort.broker.handlers.join_group import RESPONDERS
from kohort.groups.classic.group import ClassicGroup
from kohort.groups.classic.timers import JOIN_TIMER
from kohort.groups.config import GroupConfig
from kohort.groups.effects import Replies
from kohort.groups.requests import JoinRequest, JoinResult, Now
from kohort.protocol.codec import codec
from kohort.protocol.join_reason import JoinReason
from kohort.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from kohort.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kohort.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from kohort.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kohort.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kohort.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record

TITLE: Final = "Codec, one message"

_ROUNDS: Final = 7
_ROUND_S: Final = 0.02
_MEMBER: Final = "consumer-orders-1-0f8fad5b-d9cb-469f-a165-70867728950e"
_TOPIC: Final = "orders.payments.v1"


def measure(bench: Bench) -> Iterable[Row]:
    figures = bench.measure_ours(_measure_all)
    for name, figure in figures.items():
        yield Row(name, "us", figure)


def _measure_all() -> Measured:
    measured: dict[str, float] = {}
    for message, version in _messages():
        one = codec(type(message), version)
        frame = memoryview(one.encode(message))
        if one.decode(frame) != (message, len(frame)):
            raise RuntimeError(f"{message!r} came back changed")
        kind = f"{type(message).__name__} v{version}"
        if getattr(message, "join_reason", JoinReason.UNKNOWN):
            kind += " with JoinReason"
        name = f"{kind}, {len(frame):,} B"
        if type(message).__name__.endswith("Request"):
            measured[f"decode {name}"] = _best_us(partial(one.decode, frame))
        else:
            measured[f"encode {name}"] = _best_us(partial(one.encode_parts, message))
    return measured


def _best_us(work: Callable[[], object]) -> float:
    best, calls = float("inf"), 10
    for _ in range(_ROUNDS):
        began = time.perf_counter()
        for _ in range(calls):
            work()
        took = time.perf_counter() - began
        best = min(best, took / calls)
        calls = max(10, int(_ROUND_S / best))
    return best * 1e6


def _messages() -> Iterable[tuple[Any, int]]:
    records = memoryview(encode_batch([Record(bytes(1_000))] * 15))
    yield HeartbeatRequest(group_id="orders", generation_id=7, member_id=_MEMBER), 4
    yield HeartbeatResponse(error_code=0), 4
    yield from _commits()
    yield from _metadata()
    yield ApiVersionsRequest(client_software_name="java", client_software_version="4.4.0"), 4
    keys = [ApiVersion(api_key=key, min_version=0, max_version=9) for key in range(40)]
    yield ApiVersionsResponse(error_code=0, api_keys=keys), 4
    yield from _produce(records)
    yield from _fetch(records)
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(60))
    for reason in (JoinReason.UNKNOWN, JoinReason.RESTART):
        yield (
            JoinGroupRequest(
                group_id="orders", session_timeout_ms=45_000, rebalance_timeout_ms=300_000,
                member_id=_MEMBER, protocol_type="consumer", protocols=[protocol],
                join_reason=reason,
            ),
            9,
        )  # fmt: skip
    yield RESPONDERS[9](_result_of_leader(1_000)), 9


def _result_of_leader(member_count: int) -> JoinResult:
    """What a new group of so many members gives its leader."""
    ids = iter(range(member_count))
    group = ClassicGroup("orders", GroupConfig(), new_member_id=lambda _: f"{_MEMBER}{next(ids)}")
    for _ in range(member_count):
        join = JoinRequest(
            "", None, "consumer", "/127.0.0.1", 45_000, 300_000, "consumer",
            (("range", bytes(60)),), requires_known_id=False,
        )  # fmt: skip
        group.join(join, object(), Now(0, 0))
    # The initial delay is prolonged by members that come meanwhile; none do.
    for now_ms in (3_000, 6_000):
        group.on_deadlines([JOIN_TIMER], Now(now_ms, now_ms))
    answers = [effect for effect in group.take_effects() if isinstance(effect, Replies)]
    results: list[JoinResult] = [reply.body for effect in answers for reply in effect.replies]
    (of_leader,) = [result for result in results if result.members]
    return of_leader


def _commits() -> Iterable[tuple[Any, int]]:
    for count in (1, 20):
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=number, committed_offset=4_711, committed_metadata=""
            )
            for number in range(count)
        ]
        yield (
            OffsetCommitRequest(
                group_id="orders", generation_id_or_member_epoch=7, member_id=_MEMBER,
                topics=[OffsetCommitRequestTopic(name=_TOPIC, partitions=partitions)],
            ),
            9,
        )  # fmt: skip
        outcomes = [
            OffsetCommitResponsePartition(partition_index=number, error_code=0)
            for number in range(count)
        ]
        topic = OffsetCommitResponseTopic(name=_TOPIC, partitions=outcomes)
        yield OffsetCommitResponse(topics=[topic]), 9


def _metadata() -> Iterable[tuple[Any, int]]:
    yield MetadataRequest(topics=[MetadataRequestTopic(name=_TOPIC)]), 12
    partitions = [
        MetadataResponsePartition(
            error_code=0, partition_index=number, leader_id=1, leader_epoch=0, replica_nodes=[1],
            isr_nodes=[1],
        )
        for number in range(10)
    ]  # fmt: skip
    topic = MetadataResponseTopic(error_code=0, name=_TOPIC, partitions=partitions)
    broker = MetadataResponseBroker(node_id=1, host="localhost", port=9_092)
    yield MetadataResponse(brokers=[broker], cluster_id="x", controller_id=1, topics=[topic]), 12


def _produce(records: memoryview) -> Iterable[tuple[Any, int]]:
    data = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name=_TOPIC, partition_data=[data])
    yield ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 9
    outcome = PartitionProduceResponse(index=0, error_code=0, base_offset=4_711)
    answer = TopicProduceResponse(name=_TOPIC, partition_responses=[outcome])
    yield ProduceResponse(responses=[answer]), 9


def _fetch(records: memoryview) -> Iterable[tuple[Any, int]]:
    wanted = FetchPartition(partition=0, fetch_offset=4_711, partition_max_bytes=1 << 20)
    yield (
        FetchRequest(
            max_wait_ms=500, min_bytes=1, max_bytes=50 << 20,
            topics=[FetchTopic(topic=_TOPIC, partitions=[wanted])],
        ),
        12,
    )  # fmt: skip
    data = PartitionData(
        partition_index=0, error_code=0, high_watermark=4_800, last_stable_offset=4_800,
        aborted_transactions=None, records=records,
    )  # fmt: skip
    topic = FetchableTopicResponse(topic=_TOPIC, partitions=[data])
    yield FetchResponse(error_code=0, session_id=0, responses=[topic]), 12
