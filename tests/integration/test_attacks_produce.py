"""Attacks with Produce: requests of a few megabytes that want seconds of work.

They may take their time; no other client waits for them.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from threading import Thread

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.limits import PRODUCE_ELEMENTS_MAX
from kohort.protocol.records.batch import CompressionType, read_header
from kohort.protocol.records.builder import assemble, encode_batch
from kohort.protocol.records.compression import compress
from kohort.protocol.records.record import Record
from tests.support import messages as m
from tests.support.brokers.kohort_server import KohortServer
from tests.support.measures.watch import MIB, forget_peak, resident_bytes, undisturbed, warmed_up
from tests.support.network.requests import create_topics, produce_request
from tests.support.network.wire import RawClient
from tests.support.records.batches import one_record, with_block

TOPIC = "topic"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KohortServer]:
    with KohortServer(tmp_path_factory.mktemp("produce")) as server:
        with RawClient(server.port) as client:
            create_topics(client, TOPIC)
        yield warmed_up(server)


def produced(server: KohortServer, batches: Sequence[bytes], topic: str = TOPIC) -> list[int]:
    """Send them in one request; the error codes."""
    with RawClient(server.port, timeout_s=120) as client:
        request = produce_request(topic, *batches)
        (answer,) = client.call(request, 9, m.ProduceResponse).responses
    return [one.error_code for one in answer.partition_responses]


def test_a_request_of_many_small_batches(server: KohortServer) -> None:
    batch = encode_batch([Record(b"")])
    count = PRODUCE_ELEMENTS_MAX - 1

    with undisturbed(server, longest_s=1.0, more_bytes_max=32 * MIB):
        assert produced(server, [batch] * count) == [ErrorCode.NONE] * count


@pytest.mark.long
def test_a_request_of_many_batches_that_inflate_to_a_megabyte(server: KohortServer) -> None:
    """Each of them is too small to be judged in steps."""
    batch = with_block(one_record(Record(bytes(MIB - 1_000))), 1, CompressionType.GZIP)

    with undisturbed(server, longest_s=1.0):
        assert produced(server, [batch] * 1_000) == [ErrorCode.NONE] * 1_000


def test_a_record_of_sixteen_million_headers(server: KohortServer) -> None:
    headers = b"\x00\x01" * 16_000_000
    # Attributes, deltas, neither key nor value, and the count and size as varints.
    body = b"\x00\x00\x00\x01\x01" + b"\x80\x90\xa1\x0f" + headers
    block = b"\x92\xa0\xc2\x1e" + body
    batch = with_block(block, 1, CompressionType.ZSTD)
    assert len(batch) < 4_000

    with undisturbed(server, longest_s=1.0, more_bytes_max=64 * MIB):
        assert produced(server, [batch]) == [ErrorCode.INVALID_RECORD]


@pytest.mark.parametrize(
    "codec", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4]
)
def test_a_large_block_that_is_compressed_again(
    server: KohortServer, codec: CompressionType
) -> None:
    block = one_record(Record(bytes(10 * MIB)))
    plain = with_block(block, 1)
    payload = compress(codec, block) + b"\x00"
    batch = assemble(read_header(plain)._replace(attributes=int(codec)), payload)

    with undisturbed(server, longest_s=1.0, more_bytes_max=64 * MIB):
        assert produced(server, [batch] * 3) == [ErrorCode.NONE] * 3


def test_many_connections_with_batches_that_inflate_far(server: KohortServer) -> None:
    """A connection that waits for others to be judged keeps no more than what it sent."""
    batch = with_block(one_record(Record(bytes(8 * MIB))), 1, CompressionType.ZSTD)
    forget_peak(server)
    before = resident_bytes(server)
    senders = [Thread(target=partial(produced, server, [batch])) for _ in range(100)]

    with undisturbed(server, longest_s=1.0, more_bytes_max=64 * MIB):
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()

    assert resident_bytes(server, "VmHWM") - before < 128 * MIB


def test_a_long_name_that_is_refused_for_many_partitions(server: KohortServer) -> None:
    """What the log might say of each of them is not put together for all."""
    forget_peak(server)
    before = resident_bytes(server)
    count = PRODUCE_ELEMENTS_MAX - 1

    with undisturbed(server, longest_s=1.0, more_bytes_max=32 * MIB):
        codes = produced(server, [b""] * count, topic="x" * 0x7FFF)

    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * count
    assert resident_bytes(server, "VmHWM") - before < 64 * MIB
