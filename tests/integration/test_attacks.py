"""Named attacks on a broker in a process of its own, whose memory and answers are watched.

An attack must not keep another connection waiting, and its memory must be given back.
"""

import gzip
import random
import socket
import statistics
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.limits import REQUEST_ELEMENTS_MAX
from kohort.protocol.records.batch import CompressionType
from tests.support import messages as m
from tests.support.brokers.kohort_server import KohortServer
from tests.support.measures.watch import MIB, resident_bytes, undisturbed, warmed_up
from tests.support.network.requests import create_topics, produce_request
from tests.support.network.wire import RawClient, framed, header
from tests.support.records.batches import with_block

FRAME_TIMEOUT_S = 3
NO_TAGS = b"\x00"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KohortServer]:
    with KohortServer(tmp_path_factory.mktemp("attacks")) as server:
        yield warmed_up(server)


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KohortServer]:
    """Broker that closes clients that keep it waiting; a busy machine does so, too, amid 50 MB."""
    overrides = {"kohort.frame.timeout.ms": str(FRAME_TIMEOUT_S * 1_000)}
    with KohortServer(tmp_path_factory.mktemp("impatient"), overrides=overrides) as server:
        yield warmed_up(server)


TAG_COUNT = 20_000_000
TAG_COUNT_VARINT = b"\x80\xda\xc4\x09"


@pytest.mark.parametrize("place", ["header", "body"])
def test_twenty_million_tagged_fields(server: KohortServer, place: str) -> None:
    """60 MB of tags, each of which is legal by itself."""
    tags = b"".join(
        bytes([number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14, 0])
        for number in range(1, 1 << 17)
    )
    tags *= TAG_COUNT // (1 << 17)
    begin = header(12, 4) if place == "header" else header(12, 4, tags=NO_TAGS) + (
        b"\x02g" + bytes(4) + b"\x02m" + b"\x00"
    )  # fmt: skip
    with undisturbed(server), RawClient(server.port) as client:
        client.send(framed(begin + TAG_COUNT_VARINT + tags))
        assert client.is_closed()


@pytest.mark.parametrize(
    "body",
    [
        header(3, 8) + struct.pack(">i", 2**31 - 1),
        header(3, 12, tags=NO_TAGS) + b"\xff\xff\xff\xff\x0f",
        header(1, 11) + bytes(13) + struct.pack(">i", 2**31 - 1),
        # As many elements as there is room for, all of them empty.
        header(3, 12, tags=NO_TAGS) + b"\x80\x80\x80\x18" + bytes(50_000_000),
        header(3, 8) + struct.pack(">i", 25_000_000) + bytes(50_000_000),
        # As many as are let through, each of them an element of a few bytes.
        header(42, 2, tags=NO_TAGS) + b"\xa2\x8d\x06" + b"\x02g" * 100_001 + NO_TAGS,
        header(42, 2, tags=NO_TAGS) + b"\x80\x80\x80\x18" + b"\x01" * 50_331_650,
    ],
    ids=["int32", "varint", "nested", "filled varint", "filled int32", "valid", "filled strings"],
)
def test_arrays_of_billions(server: KohortServer, body: bytes) -> None:
    with undisturbed(server), RawClient(server.port) as client:
        client.send(framed(body))
        assert client.is_closed()


def test_memory_is_given_back_whatever_sizes_requests_have(
    server: KohortServer, *, long_form: bool
) -> None:
    """An allocator that learns from the sizes of large blocks keeps more and more of them."""
    sizes = random.Random(1)
    before = resident_bytes(server)
    afterwards = []
    for _ in range(8 if long_form else 4):
        body = header(3, 12, tags=NO_TAGS) + b"\x80\x80\x80\x18"
        with RawClient(server.port) as client:
            client.send(framed(body + bytes(sizes.randrange(5 * MIB, 60 * MIB))))
            assert client.is_closed()
        # It closes the connection first, and the memory is back a moment later.
        until_s = time.monotonic() + 5
        while resident_bytes(server) - before >= 16 * MIB and time.monotonic() < until_s:
            time.sleep(0.05)
        afterwards.append(resident_bytes(server))
    assert statistics.median(afterwards) - before < 16 * MIB, afterwards


def test_memory_is_given_back_after_large_requests_in_the_first_second(tmp_path: Path) -> None:
    """Before the allocator has its limits it puts large blocks on the heap, below small ones."""
    body = header(3, 12, tags=NO_TAGS) + b"\x80\x80\x80\x18"
    with KohortServer(tmp_path) as fresh, undisturbed(fresh, more_bytes_max=24 * MIB):
        for size in (31, 30, 16, 24, 12, 28, 20, 29, 14, 30):
            with RawClient(fresh.port) as client:
                client.send(framed(body + bytes(size * MIB)))
                assert client.is_closed()


def test_the_largest_request_that_is_let_through(server: KohortServer) -> None:
    """It is decoded and answered in one turn of the loop, so its size is what others wait for."""
    topics = [m.MetadataRequestTopic(name=f"topic-{n}") for n in range(REQUEST_ELEMENTS_MAX)]
    request = m.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    with (
        undisturbed(server, more_bytes_max=64 * MIB),
        RawClient(server.port) as client,
    ):
        answer = client.call(request, 12, m.MetadataResponse)
        assert len(answer.topics) == REQUEST_ELEMENTS_MAX


def test_large_frames_that_are_announced_and_never_sent(impatient: KohortServer) -> None:
    before = resident_bytes(impatient)
    with undisturbed(impatient):
        clients = [RawClient(impatient.port) for _ in range(200)]
        for client in clients:
            client.send(struct.pack(">i", 100 * MIB) + b"x")
        time.sleep(FRAME_TIMEOUT_S / 2)
        assert resident_bytes(impatient) - before < 16 * MIB
        for client in clients:
            assert client.is_closed()
            client.close()


def test_large_frames_that_are_begun_and_not_completed(impatient: KohortServer) -> None:
    """1.2 GB in all; the budget for requests is 256 MiB, and one connection may exceed it."""
    before = resident_bytes(impatient)
    with undisturbed(impatient, more_bytes_max=32 * MIB):
        clients = [RawClient(impatient.port, timeout_s=60) for _ in range(60)]
        data = struct.pack(">i", 40 * MIB) + bytes(20 * MIB)
        for client in clients:
            client.socket.setblocking(False)
        left = {client: memoryview(data) for client in clients}
        closed = 0
        deadline_s = time.monotonic() + FRAME_TIMEOUT_S / 2
        while left and time.monotonic() < deadline_s:
            for client, part in list(left.items()):
                try:
                    sent = client.socket.send(part[:MIB])
                except BlockingIOError:
                    continue
                except OSError:  # The broker closes slow uploads if memory is short.
                    closed += 1
                    sent = len(part)
                left[client] = part[sent:]
                if not left[client]:
                    del left[client]
        assert left or closed, "the broker received all of it"
        assert resident_bytes(impatient) - before < (256 + 100) * MIB
        for client in clients:
            client.close()


@pytest.mark.long
def test_two_thousand_connections_that_send_a_byte_a_second(impatient: KohortServer) -> None:
    before = resident_bytes(impatient)
    # The sockets' own memory is the kernel's; ours is what is kept per connection.
    with undisturbed(impatient, more_bytes_max=32 * MIB):
        sockets = [socket.create_connection(("127.0.0.1", impatient.port)) for _ in range(2_000)]
        frame = framed(bytes(50_000))
        for second in range(60):
            sockets = [one for one in sockets if is_sent(one, frame[second : second + 1])]
            if not sockets:
                break
            time.sleep(1)
            assert resident_bytes(impatient) - before < 2_000 * 20 * 1024
        assert not sockets, "the frame timeout ends them all"


def is_sent(connection: socket.socket, data: bytes) -> bool:
    """False if the broker has closed the connection; then it is closed here, too."""
    try:
        connection.send(data)
    except OSError:
        connection.close()
        return False
    return True


class FewFiles(KohortServer):
    """A broker that may open 128 files."""

    def command(self) -> list[str]:
        return ["bash", "-c", 'ulimit -n 128; exec "$@"', "broker", *super().command()]


def test_connections_do_not_take_the_descriptors_that_logs_need(tmp_path: Path) -> None:
    with FewFiles(tmp_path) as server, RawClient(server.port) as client:
        crowd = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
        for number in range(40):
            name = f"topic-{number}"
            create_topics(client, name, partitions=3)
        for one in crowd:
            one.close()
    assert "At most 16 connections" in server.log_file.read_text()


def test_many_small_requests_that_are_never_read(server: KohortServer) -> None:
    """Answers of a client that does not read stay within its buffers."""
    before = resident_bytes(server)
    frame = framed(header(18, 0))
    with undisturbed(server), RawClient(server.port, timeout_s=1) as client:
        with pytest.raises(TimeoutError):
            client.send(frame * 5_000_000)
        assert resident_bytes(server) - before < 16 * MIB


def gigabyte_in_gzip() -> bytes:
    """A gigabyte of zeros, of which a megabyte has been compressed; with a wrong checksum."""
    deflate = zlib.compressobj(9, wbits=-15)
    block = deflate.compress(bytes(MIB)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return gzip.compress(b"")[:10] + block * 1_000 + b"\x03\x00" + bytes(8)


def test_a_batch_of_one_megabyte_that_inflates_to_a_gigabyte(server: KohortServer) -> None:
    bomb = gigabyte_in_gzip()
    assert len(bomb) < 1.1 * MIB
    # Made without inflating it again.
    records = with_block(bomb, 1, CompressionType.NONE, attributes=CompressionType.GZIP)
    with undisturbed(server), RawClient(server.port) as client:
        create_topics(client, "bomb")
        answer = client.call(produce_request("bomb", records), 9, m.ProduceResponse)
        ((partition,),) = [topic.partition_responses for topic in answer.responses]
        assert partition.error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert "for bomb-0: gzip block inflates to more than" in server.log_file.read_text()
