"""How far a request walks: functions that are called and files that are entered on the loop.

What is called for every request is what every request costs, and what a reader has to follow. A
change that makes a walk longer should be meant; the figures are in
docs/adr/0024-rooms-of-the-broker.md.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest

import kohort
from kohort.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kohort.protocol.messages.fetch import FetchResponse
from kohort.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kohort.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kohort.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.requests import fetch_request
from tests.support.network.wire import RawClient

SOURCES = str(Path(kohort.__file__).parent) + "/"
BY_THE_CLOCK = ("broker/metrics/loop_lag.py", "broker/metrics/tally.py")
"""Called now and then, whatever is asked."""

SUBSCRIPTION = b"\0\1" + bytes(8)


class Walk(NamedTuple):
    """What one request entered."""

    calls: int
    files: int


class Walker:
    """A client whose requests are followed through the broker."""

    def __init__(self, broker: BrokerThread, client: RawClient) -> None:
        self._broker = broker
        self._client = client
        self._entered: list[str] = []

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(SOURCES):
            self._entered.append(name.removeprefix(SOURCES))

    def follow(self, ask: Callable[[RawClient], object]) -> Walk:
        """The shortest of some walks: what the broker does besides is not the request's."""
        ask(self._client)
        walks = []
        for _ in range(20):
            self._broker.call(lambda: sys.setprofile(self._note))
            self._entered.clear()
            ask(self._client)
            self._broker.call(lambda: None)
            self._broker.call(lambda: sys.setprofile(None))
            files = [name for name in self._entered if name not in BY_THE_CLOCK]
            walks.append(Walk(len(files), len(set(files))))
        return min(walks)


@contextmanager
def walker(directory: Path) -> Iterator[Walker]:
    with BrokerThread(directory) as broker, RawClient(broker.port) as client:
        topic = CreatableTopic(
            name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        created = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        client.call(created, 5, CreateTopicsResponse)
        yield Walker(broker, client)


def heartbeat(client: RawClient) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="nobody")
    client.call(request, 4, HeartbeatResponse)


def commit(client: RawClient) -> None:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=5, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name="t", partitions=[partition])],
    )
    answer = client.call(request, 8, OffsetCommitResponse)
    assert answer.topics[0].partitions[0].error_code == 0


def produce(client: RawClient) -> None:
    now_ms = int(time.time() * 1_000)
    batch = encode_batch([Record(b"v" * 100, b"k", (), now_ms) for _ in range(10)])
    data = PartitionProduceData(index=0, records=memoryview(batch))
    request = ProduceRequest(
        transactional_id=None,
        acks=1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(name="t", partition_data=[data])],
    )
    answer = client.call(request, 9, ProduceResponse)
    assert answer.responses[0].partition_responses[0].error_code == 0


def fetch(client: RawClient) -> None:
    client.call(fetch_request("t"), 11, FetchResponse)


def join(client: RawClient) -> None:
    request = JoinGroupRequest(
        group_id="j",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    )
    client.call(request, 9, JoinGroupResponse)


@pytest.mark.parametrize(
    ("ask", "calls_max", "files_max"),
    [
        (heartbeat, 45, 15),
        (commit, 120, 42),
        (produce, 85, 31),
        (fetch, 65, 22),
        (join, 95, 33),
    ],
)
def test_a_request_takes_no_longer_a_way_than_it_needs(
    tmp_path: Path, ask: Callable[[RawClient], object], calls_max: int, files_max: int
) -> None:
    with walker(tmp_path) as walks:
        walk = walks.follow(ask)
    assert 10 < walk.calls <= calls_max, walk
    assert walk.files <= files_max, walk
