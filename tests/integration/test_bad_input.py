"""What a broker does with input that no client should send, over real sockets.

Each row is what Apache Kafka 4.4.0 does, unless its name says otherwise. And whatever it is, it
disturbs no other client: every test keeps another connection under watch.
"""

import asyncio
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from kohort.protocol.codec import codec
from kohort.protocol.errors import ErrorCode
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.wire import RawClient, framed, header, request_body, response_in

FRAME_TIMEOUT_MS = 600
HEARTBEAT = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
NO_TAGS = b"\x00"


@pytest.fixture(
    scope="module",
    params=[asyncio.new_event_loop, uvloop.new_event_loop],
    ids=["asyncio", "uvloop"],
)
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerThread]:
    directory: Path = tmp_path_factory.mktemp("broker")
    overrides = {"kohort.frame.timeout.ms": str(FRAME_TIMEOUT_MS)}
    with BrokerThread(directory, overrides=overrides, loop_factory=request.param) as running:
        yield running


@pytest.fixture
def other(running: BrokerThread) -> Iterator[RawClient]:
    """A connection that nothing of all this may disturb."""
    with RawClient(running.port) as other:
        assert other.is_answered()
        yield other
        assert other.is_answered()


@pytest.fixture
def client(running: BrokerThread) -> Iterator[RawClient]:
    with RawClient(running.port) as client:
        yield client


def rejected(running: BrokerThread) -> dict[str, int]:
    return running.call(lambda: dict(running.broker.metrics.edge.rejected))


@pytest.mark.parametrize(
    ("key", "version"), [(999, 0), (-1, 0), (4, 0), (52, 0), (62, 0), (32767, 32767)]
)
def test_an_api_that_is_unknown_removed_or_for_controllers_closes(
    running: BrokerThread,
    other: RawClient,
    client: RawClient,
    key: int,
    version: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = rejected(running).get("unknown_api", 0)
    client.send(framed(header(key, version, client_id=b"odd client")))
    assert client.is_closed()
    assert rejected(running)["unknown_api"] == before + 1
    # The ration of such lines may be used up by the parameters before.
    lines = [line for line in caplog.messages if f"api {key} " in line]
    assert all("'odd client'" in line and "127.0.0.1" in line for line in lines)


@pytest.mark.parametrize(
    ("key", "version"), [(11, 99), (1, 0), (1, 3), (0, 2), (0, 0), (3, -1), (12, 5)]
)
def test_a_version_that_is_not_served_closes(
    running: BrokerThread, other: RawClient, client: RawClient, key: int, version: int
) -> None:
    before = rejected(running).get("unsupported_version", 0)
    client.send(framed(header(key, version, tags=NO_TAGS) + bytes(100)))
    assert client.is_closed()
    assert rejected(running)["unsupported_version"] == before + 1


@pytest.mark.parametrize("version", [6, 99, -1])
def test_api_versions_of_an_unknown_version_is_answered_in_v0_and_the_connection_stays(
    other: RawClient, client: RawClient, version: int
) -> None:
    client.send(framed(header(18, version, correlation_id=9) + b"whatever follows"))
    body = client.receive()
    assert len(body) == 16
    message = response_in(body, m.ApiVersionsResponse, 0, correlation_id=9)
    assert message.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(v.api_key, v.min_version, v.max_version) for v in message.api_keys] == [(18, 0, 5)]
    assert client.is_answered()


@pytest.mark.parametrize("size", [0, -1, -(2**31)])
def test_a_frame_size_that_is_not_positive_closes(
    other: RawClient, client: RawClient, size: int
) -> None:
    client.send(struct.pack(">i", size))
    assert client.is_closed()


@pytest.mark.parametrize("size", [104_857_601, 2**31 - 1])
def test_a_frame_size_above_the_limit_closes_after_the_size_alone(
    other: RawClient, client: RawClient, size: int
) -> None:
    client.send(struct.pack(">i", size))
    assert client.is_closed()


@pytest.mark.parametrize(
    ("begin", "name"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "HTTP"),
        (bytes.fromhex("16030100c8010000c40303"), "TLS"),
    ],
)
def test_other_protocols_are_closed_and_named_in_the_log(
    other: RawClient,
    client: RawClient,
    begin: bytes,
    name: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client.send(begin)
    assert client.is_closed()
    assert [line for line in caplog.messages if name in line and "127.0.0.1" in line]


@pytest.mark.parametrize("body", [b"\x00", b"\x00\x03\x00\x01", header(3, 1)[:9]])
def test_a_frame_shorter_than_a_header_closes(
    other: RawClient, client: RawClient, body: bytes
) -> None:
    client.send(framed(body))
    assert client.is_closed()


VALID_BODIES = [
    request_body(HEARTBEAT, 3),
    request_body(HEARTBEAT, 4),
    request_body(m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")]), 8),
    request_body(m.MetadataRequest(topics=[m.MetadataRequestTopic(name="t")]), 12),
]


@pytest.mark.parametrize("body", VALID_BODIES)
def test_a_body_that_ends_early_closes_wherever_it_ends(
    running: BrokerThread, other: RawClient, body: bytes
) -> None:
    for length in range(14, len(body)):
        with RawClient(running.port) as client:
            client.send(framed(body[:length]))
            assert client.is_closed(), length


LONGEST = struct.pack(">i", 2**31 - 1)
LONGEST_COMPACT = b"\xff\xff\xff\xff\x0f"


@pytest.mark.parametrize(
    "body",
    [
        # An array of 2^31 - 1 elements, and of 2^32 - 2.
        header(3, 8) + LONGEST,
        header(3, 12, tags=NO_TAGS) + LONGEST_COMPACT,
        header(0, 3) + b"\xff\xff" + b"\x00\x01" + bytes(4) + LONGEST,
        header(0, 9, tags=NO_TAGS) + b"\x00" + b"\x00\x01" + bytes(4) + LONGEST_COMPACT,
        # A string beyond the end, of negative length, and not in UTF-8.
        header(12, 0 + 3) + b"\x7f\xff" + b"abc",
        header(12, 3) + b"\xff\xfe" + b"abc",
        header(12, 3) + b"\x00\x02\xc3\x28" + bytes(4),
        # The members' metadata: bytes beyond the end.
        header(11, 0) + b"\x00\x01g" + bytes(4) + b"\x00\x00" + b"\x00\x01c"
        + b"\x00\x00\x00\x01" + b"\x00\x01p" + LONGEST,
        # A varint that does not end.
        header(3, 12, tags=NO_TAGS) + b"\xff" * 40,
        # A client id beyond the end, and not in UTF-8.
        struct.pack(">hhih", 3, 8, 1, 32_000) + b"abc",
        header(3, 8, client_id=b"\xff") + LONGEST,
    ],
)  # fmt: skip
def test_a_length_or_count_beyond_what_is_left_closes(
    other: RawClient, client: RawClient, body: bytes
) -> None:
    client.send(framed(body))
    assert client.is_closed()


def test_bytes_after_the_body_are_ignored(other: RawClient, client: RawClient) -> None:
    client.send(framed(request_body(HEARTBEAT, 4) + b"more than was asked for"))
    message = response_in(client.receive(), m.HeartbeatResponse, 4)
    assert message.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.is_answered()


@pytest.mark.parametrize("begin", [b"\x00", b"\x00\x00\x00\x64", framed(bytes(50))[:30]])
def test_a_frame_that_is_never_completed_closes_after_its_timeout(
    other: RawClient, client: RawClient, begin: bytes
) -> None:
    """Kafka waits for the idle limit, ten minutes."""
    began_s = time.monotonic()
    client.send(begin)
    assert client.is_closed()
    assert FRAME_TIMEOUT_MS / 1_000 <= time.monotonic() - began_s < 100


def test_a_connection_that_says_nothing_stays_open(other: RawClient, client: RawClient) -> None:
    time.sleep(2 * FRAME_TIMEOUT_MS / 1_000)
    assert client.is_answered()


def test_unknown_tags_are_ignored_in_the_header_and_in_the_body(
    other: RawClient, client: RawClient
) -> None:
    body = codec(m.HeartbeatRequest, 4).encode(HEARTBEAT)
    assert body.endswith(NO_TAGS)
    tags = b"\x02\x63\x02ab\xe4\x07\x00"
    client.send(framed(header(12, 4, tags=tags) + body[:-1] + tags))
    message = response_in(client.receive(), m.HeartbeatResponse, 4)
    assert message.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_tags_in_descending_order_are_accepted_and_the_same_tag_twice_closes(
    other: RawClient, client: RawClient
) -> None:
    body = codec(m.HeartbeatRequest, 4).encode(HEARTBEAT)
    client.send(framed(header(12, 4, tags=b"\x02\x09\x00\x03\x00") + body))
    client.receive()
    client.send(framed(header(12, 4, tags=b"\x02\x09\x00\x09\x00") + body))
    assert client.is_closed()


def test_a_handler_that_raises_is_answered_with_an_error(
    running: BrokerThread,
    other: RawClient,
    client: RawClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("our mistake")

    groups = running.broker.services.classic_groups
    monkeypatch.setattr(type(groups), "heartbeat", broken)
    message = client.call(HEARTBEAT, 4, m.HeartbeatResponse)
    assert message.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "our mistake" in caplog.text
    monkeypatch.undo()
    message = client.call(HEARTBEAT, 4, m.HeartbeatResponse)
    assert message.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def produce(topic: str, acks: int, records: bytes) -> m.ProduceRequest:
    return m.ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            m.TopicProduceData(
                name=topic, partition_data=[m.PartitionProduceData(index=0, records=records)]
            )
        ],
    )


@pytest.mark.parametrize("topic", ["no-such-topic", "bad-input"])
def test_a_produce_without_acks_that_fails_closes(
    other: RawClient, client: RawClient, topic: str
) -> None:
    """For want of the topic, and for a batch that is none."""
    create = m.CreateTopicsRequest(
        topics=[
            m.CreatableTopic(
                name="bad-input", num_partitions=1, replication_factor=1, assignments=[], configs=[]
            )
        ],
        timeout_ms=10_000,
    )
    client.call(create, 5, m.CreateTopicsResponse)
    client.send(framed(request_body(produce(topic, 0, b"not a batch"), 9)))
    assert client.is_closed()


@pytest.mark.parametrize(
    "request_",
    [
        m.OffsetCommitRequest(group_id="", member_id="", topics=[]),
        m.JoinGroupRequest(
            group_id="",
            session_timeout_ms=-1,
            member_id="",
            protocol_type="",
            protocols=[],
        ),
        m.FetchRequest(max_wait_ms=-1, min_bytes=-1, max_bytes=-1, session_id=-7, topics=[]),
        m.MetadataRequest(topics=[m.MetadataRequestTopic(name="")]),
        m.MetadataRequest(topics=[m.MetadataRequestTopic(name="../../etc")]),
    ],
    ids=["commit", "join", "fetch", "metadata of nothing", "metadata of a path"],
)
def test_values_that_make_no_sense_are_answered(
    other: RawClient, client: RawClient, request_: object
) -> None:
    for version in (8, 9):
        client.ask(request_, version)
    assert client.is_answered()


def test_a_fault_is_counted_where_it_can_be_seen(running: BrokerThread, client: RawClient) -> None:
    client.send(framed(header(12, 4, tags=NO_TAGS)))
    assert client.is_closed()
    assert rejected(running)["malformed_body"] >= 1
    closed = running.call(lambda: dict(running.broker.metrics.edge.closed))
    assert closed["bad_request"] >= 1
