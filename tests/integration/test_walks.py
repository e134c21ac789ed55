"""How far a request walks: functions that are called and files that are entered on the loop.

What is called for every request is what every request costs, and what a reader has to follow. A
change that makes a walk longer should be meant: docs/ARCHITECTURE.md has the figures, and walks are
held to them.
"""

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest

import kohort
from kohort import Consumer
from kohort.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kohort.protocol.messages.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
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
from tests.support.network.wire import RawClient, framed, request_body, response_in

SOURCES = str(Path(kohort.__file__).parent) + "/"
DOCUMENT = Path(__file__).parents[2] / "docs" / "ARCHITECTURE.md"

BY_THE_CLOCK = ("broker/metrics/loop_lag.py", "broker/metrics/tally.py")
"""Called now and then, whatever is asked."""

COMPILED = ("client/core/fetch/unpack.py", "protocol/records/lines.py", "protocol/records/walk.py")
"""Not seen where there was a compiler."""

CALLS_LESS_MAX = 8
"""Calls that another Python may make less than the document says: 3.12 has no function for a list
comprehension. A walk that has become shorter than that belongs into the document."""

SUBSCRIPTION = b"\0\1" + bytes(8)


class Walk(NamedTuple):
    """What one request entered."""

    calls: int
    files: int


class Entered:
    """The files of the functions that one thread calls."""

    def __init__(self) -> None:
        self._files: list[str] = []

    def note(self, frame: FrameType, event: str, _: object) -> None:
        """Take notes; for `sys.setprofile`."""
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(SOURCES):
            self._files.append(name.removeprefix(SOURCES))

    def take(self) -> Walk:
        """Return the walk since the last call of this."""
        files = [name for name in self._files if name not in (*BY_THE_CLOCK, *COMPILED)]
        self._files.clear()
        return Walk(len(files), len(set(files)))


class Walker:
    """A client whose requests are followed through the broker."""

    def __init__(self, broker: BrokerThread, client: RawClient) -> None:
        self._broker = broker
        self._client = client

    @property
    def port(self) -> int:
        return self._broker.port

    def follow(
        self, ask: Callable[[RawClient], object], prepare: Callable[[], object] = lambda: None
    ) -> Walk:
        """The shortest of some walks: what the broker does besides is not the request's.

        `prepare` comes before each of them, and is not followed.
        """
        entered = Entered()
        prepare()
        ask(self._client)
        walks = []
        for _ in range(20):
            prepare()
            self._broker.call(lambda: sys.setprofile(entered.note))
            entered.take()
            ask(self._client)
            self._broker.call(lambda: None)
            self._broker.call(lambda: sys.setprofile(None))
            walks.append(entered.take())
        return min(walks)


@contextmanager
def walker(directory: Path) -> Iterator[Walker]:
    """A topic with records, and a client that asks for them."""
    with BrokerThread(directory) as broker, RawClient(broker.port) as client:
        topic = CreatableTopic(
            name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        created = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        client.call(created, 5, CreateTopicsResponse)
        produce(client, record_count=300)
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


def produce(client: RawClient, record_count: int = 10) -> None:
    now_ms = int(time.time() * 1_000)
    batch = encode_batch([Record(b"v" * 100, b"k", (), now_ms) for _ in range(record_count)])
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
    answer = client.call(fetch_request("t"), 11, FetchResponse)
    assert answer.responses[0].partitions[0].records


def join_request(member_id: str, metadata: bytes = SUBSCRIPTION) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="j",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


def join(client: RawClient) -> None:
    client.call(join_request(""), 9, JoinGroupResponse)


class Two:
    """Two members of a group, which join with other metadata in each round."""

    def __init__(self, waiting: RawClient, looking: RawClient) -> None:
        self._waiting = waiting
        self._looking = looking
        self._round = 0
        self._waiting_id = self._handed_out()
        waiting.call(self._next(self._waiting_id), 9, JoinGroupResponse)
        self._last_id = self._handed_out()

    def park(self) -> None:
        """The first of them joins, and waits for the second."""
        self._round += 1
        self._waiting.send(framed(request_body(self._next(self._waiting_id), 9)))
        while self._state() != "PreparingRebalance":
            time.sleep(0.001)

    def complete(self, client: RawClient) -> None:
        """The second one joins, which completes the phase."""
        last = client.call(self._next(self._last_id), 9, JoinGroupResponse)
        # Until then the broker may not have written it.
        first = response_in(self._waiting.receive(), JoinGroupResponse, 9)
        for answer in (first, last):
            assert (answer.error_code, answer.generation_id) == (0, self._round + 1)

    def _state(self) -> str:
        answer = self._looking.call(DescribeGroupsRequest(groups=["j"]), 5, DescribeGroupsResponse)
        return answer.groups[0].group_state

    def _handed_out(self) -> str:
        return self._waiting.call(join_request(""), 9, JoinGroupResponse).member_id

    def _next(self, member_id: str) -> JoinGroupRequest:
        return join_request(member_id, SUBSCRIPTION + str(self._round).encode())


WALKS: dict[str, Callable[[RawClient], object]] = {
    "Heartbeat": heartbeat,
    "JoinGroup, first leg: an id is handed out": join,
    "OffsetCommit, one partition": commit,
    "Produce, one batch": produce,
    "Fetch of records that are there": fetch,
}
COMPLETED = "JoinGroup, of two members, that completes the phase"
GETMANY = "`getmany` of a member, ten records that are there"


def documented() -> dict[str, Walk]:
    text = DOCUMENT.read_text(encoding="utf-8")
    _, found, rest = text.partition("\n## How far a request walks\n")
    assert found
    rows = re.findall(
        r"^\| (.+) \| (\d+) \| \d+ \| (\d+) \| \d+ \|$", rest.partition("\n## ")[0], re.MULTILINE
    )
    return {name: Walk(int(calls), int(files)) for name, calls, files in rows}


def check(name: str, walk: Walk) -> None:
    told = documented()[name]
    assert told.calls - CALLS_LESS_MAX <= walk.calls <= told.calls, (told, walk)
    assert told.files - 1 <= walk.files <= told.files, (told, walk)


def test_every_walk_of_the_document_is_counted() -> None:
    assert list(documented()) == [*WALKS, COMPLETED, GETMANY]


@pytest.mark.parametrize("name", WALKS)
def test_a_request_takes_no_longer_a_way_than_it_needs(tmp_path: Path, name: str) -> None:
    with walker(tmp_path) as walks:
        walk = walks.follow(WALKS[name])
    check(name, walk)


def test_nor_does_a_join_that_completes_a_phase(tmp_path: Path) -> None:
    with walker(tmp_path) as walks, RawClient(walks.port) as first, RawClient(walks.port) as asks:
        two = Two(first, asks)
        walk = walks.follow(two.complete, two.park)
    check(COMPLETED, walk)


async def test_nor_do_records_on_their_way_to_a_user(tmp_path: Path) -> None:
    with walker(tmp_path) as there:
        check(GETMANY, await read(there.port))


async def read(port: int) -> Walk:
    """The shortest of some reads: a commit is due now and then."""
    entered = Entered()
    walks = []
    async with Consumer(
        "t", bootstrap_servers=f"127.0.0.1:{port}", group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        assert await consumer.getmany(timeout_ms=30_000, max_records=10)
        for _ in range(20):
            sys.setprofile(entered.note)
            records = await consumer.getmany(max_records=10)
            sys.setprofile(None)
            walks.append(entered.take())
            assert sum(map(len, records.values())) == 10
    return min(walks)
