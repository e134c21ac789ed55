"""Answers to Fetch that the kernel sends from the log's files, whatever becomes of these then."""

import errno
import os
import random
import shutil
import socket
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pytest

from kohort.broker.network.connection import files
from kohort.broker.storage import file_range
from kohort.broker.storage.file_range import is_cached
from kohort.broker.storage.filesystem import OS_FILES
from kohort.broker.storage.log import reading
from kohort.broker.storage.segment.read import RANGE_BYTES_MIN
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import split_batches
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record
from tests.integration.conftest import LoopFactory
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.requests import create_topics, produce_request
from tests.support.network.wire import RawClient, framed, request_body, response_in
from tests.support.waiting import wait_until

MIB = 1024 * 1024
PARTITIONS = 3
HEARTBEAT = m.HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.fixture
def running(tmp_path: Path, loop_factory: LoopFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path, loop_factory=loop_factory) as running:
        yield running
    assert OS_FILES.range_count == 0, "somebody still holds files"


@pytest.fixture
def sent_from_files(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what the kernel was asked to send from files."""
    sizes: list[int] = []
    sendfile = os.sendfile

    def counted(to: int, source: int, position: int, count: int) -> int:
        sent = sendfile(to, source, position, count)
        sizes.append(sent)
        return sent

    monkeypatch.setattr(os, "sendfile", counted)
    return sizes


def sent_by(running: BrokerThread, sizes: list[int]) -> int:
    """Bytes that were sent from files. A client may have them before their size is noted."""
    return running.call(lambda: sum(sizes))


def create_topic(running: BrokerThread, name: str = "t") -> None:
    with RawClient(running.port) as client:
        create_topics(client, name, partitions=PARTITIONS)


def produce(client: RawClient, records: bytes, partition: int = 0, topic: str = "t") -> None:
    request = produce_request(topic, records, partition=partition)
    (answer,) = client.call(request, 9, m.ProduceResponse).responses[0].partition_responses
    assert answer.error_code == 0


def fill(running: BrokerThread, batch_sizes: list[int], partition: int = 0) -> bytes:
    """Append batches of about these sizes; returns the log as it is then."""
    create = random.Random(partition)
    with RawClient(running.port) as client:
        for size in batch_sizes:
            produce(client, encode_batch([Record(create.randbytes(size))]), partition)
    return log_file(running, partition).read_bytes()


def log_file(running: BrokerThread, partition: int = 0) -> Path:
    directories = running.broker.services.config.log_dirs
    assert directories is not None
    return next(Path(directories[0]).glob(f"t-{partition}/*.log"))


def fetch(
    *asked: tuple[int, int, int], max_bytes: int = 50 * MIB, max_wait_ms: int = 0
) -> m.FetchRequest:
    """`asked` are partition, offset and the most bytes of it."""
    partitions = [
        m.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=most)
        for partition, offset, most in asked
    ]
    topics = [m.FetchTopic(topic="t", partitions=partitions)]
    return m.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, topics=topics)


WHOLE = fetch((0, 0, 50 * MIB))


def records_in(body: bytes, correlation_id: int = 1) -> bytes:
    response = response_in(body, m.FetchResponse, 11, correlation_id=correlation_id)
    (partition,) = response.responses[0].partitions
    assert partition.error_code == 0
    return bytes(partition.records or b"")


class SlowReader(RawClient):
    """Its socket has room for little, so that the broker has to wait."""

    def __init__(self, running: BrokerThread) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        self.socket.settimeout(30)
        self.socket.connect(("127.0.0.1", running.port))

    def ask_and_wait(self, request: m.FetchRequest = WHOLE) -> None:
        """Ask, and wait until the broker has begun to answer and is stuck."""
        self.send(framed(request_body(request, 11)))
        assert self.socket.recv(1, socket.MSG_PEEK)
        wait_until(lambda: OS_FILES.range_count > 0, "ranges on their way")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_what_is_sent_from_files_is_byte_by_byte_what_is_read_from_them(
    running: BrokerThread, sent_from_files: list[int], long_form: bool
) -> None:
    create_topic(running)
    choose = random.Random(7)
    sizes = [
        [choose.choice((10, 3_000, 60_000, 70_000, 300_000, 900_000)) for _ in range(24)]
        for _ in range(PARTITIONS)
    ]
    for partition, of_partition in enumerate(sizes):
        fill(running, of_partition, partition)
    network = running.broker.network
    running.call(lambda: setattr(network, "sends_files", False))
    with RawClient(running.port) as copying:
        assert copying.is_answered()
        running.call(lambda: setattr(network, "sends_files", True))
        with RawClient(running.port) as sending:
            for _ in range(400 if long_form else 60):
                asked = [
                    (partition, choose.randrange(25), choose.choice((0, 1, 70_000, MIB, 9 * MIB)))
                    for partition in choose.sample(range(PARTITIONS), choose.randint(1, 3))
                ]
                limit = choose.choice((1, 100_000, MIB, 50 * MIB))
                request = fetch(*asked, max_bytes=limit)
                # The other way round the second would be given what was read for the first.
                sent = sending.ask(request, 11)
                assert copying.ask(request, 11) == sent, (asked, limit)
    assert sent_by(running, sent_from_files) > 10 * MIB


def test_a_consumer_that_goes_on_is_given_ranges_that_no_read_has_to_find(
    running: BrokerThread, sent_from_files: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are sent by the kernel from where a few looks into memory say they end."""
    create_topic(running)
    log = fill(running, [400_000, 90_000, 900_000, 20_000] * 6)
    monkeypatch.setattr(reading, "read_batches", None)
    received, offset = b"", 0
    with RawClient(running.port) as client:
        while len(log) - len(received) > RANGE_BYTES_MIN:
            records = records_in(client.ask(fetch((0, offset, MIB)), 11))
            received += records
            offset += sum(1 for _ in split_batches(records))
    assert log.startswith(received)
    assert sent_by(running, sent_from_files) == len(received)


def test_answers_that_were_asked_for_together_keep_their_order(
    running: BrokerThread, sent_from_files: list[int]
) -> None:
    create_topic(running)
    log = fill(running, [900_000] * 6)
    requests: list[m.FetchRequest | m.HeartbeatRequest] = [WHOLE, HEARTBEAT, WHOLE, HEARTBEAT] * 3
    with SlowReader(running) as client:
        frames = [
            framed(request_body(one, 11 if one is WHOLE else 4, correlation_id=number))
            for number, one in enumerate(requests)
        ]
        client.send(b"".join(frames))
        for number, one in enumerate(requests):
            if one is WHOLE:
                assert records_in(client.receive(), number) == log
            else:
                body = client.receive()
                response_in(body, m.HeartbeatResponse, 4, correlation_id=number)
    assert sent_from_files


def test_a_slow_reader_is_sent_every_byte_from_the_file(
    running: BrokerThread, sent_from_files: list[int]
) -> None:
    create_topic(running)
    log = fill(running, [900_000] * 4)
    with SlowReader(running) as client:
        client.ask_and_wait()
        assert records_in(client.receive()) == log
        assert client.is_answered()
    assert sent_by(running, sent_from_files) == len(log)
    assert len(sent_from_files) > 4


@pytest.mark.parametrize("lacks", ["a descriptor", "a place among the senders"])
def test_who_has_no_second_descriptor_is_sent_what_was_read(
    running: BrokerThread, sent_from_files: list[int], monkeypatch: pytest.MonkeyPatch, lacks: str
) -> None:
    def refuse(_number: int) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    create_topic(running)
    log = fill(running, [900_000] * 4)
    reads = running.broker.network.reads
    before = reads.senders_left
    with RawClient(running.port) as first, SlowReader(running) as client:
        assert records_in(first.ask(WHOLE, 11)) == log
        assert running.call(lambda: reads.senders_left) == before - 1
        assert sent_by(running, sent_from_files) == len(log)
        if lacks == "a descriptor":
            monkeypatch.setattr(os, "dup", refuse)
        else:
            running.call(lambda: setattr(reads, "senders_left", 0))
            before = 1
        for _ in range(2):
            client.ask_and_wait()
            assert records_in(client.receive()) == log
        assert client.is_answered()
    assert sent_by(running, sent_from_files) == len(log)
    wait_until(lambda: running.call(lambda: reads.senders_left) == before, "the senders of before")


def test_a_segment_that_is_deleted_meanwhile_is_sent_to_its_end(
    running: BrokerThread, tmp_path: Path
) -> None:
    create_topic(running)
    log = fill(running, [900_000] * 8)
    with SlowReader(running) as reader:
        reader.ask_and_wait()
        with RawClient(running.port) as client:
            request = m.DeleteTopicsRequest(topic_names=["t"], timeout_ms=10_000)
            (result,) = client.call(request, 5, m.DeleteTopicsResponse).responses
            assert result.error_code == 0
        # What the broker does by and by, if it has not done it.
        for directory in tmp_path.glob("t-0.*-delete"):
            shutil.rmtree(directory, ignore_errors=True)
        assert records_in(reader.receive()) == log


def test_a_segment_that_another_file_replaces_meanwhile_is_sent_as_it_was(
    running: BrokerThread, tmp_path: Path
) -> None:
    """Replace the file as compaction does."""
    create_topic(running)
    log = fill(running, [900_000] * 8)
    with SlowReader(running) as reader:
        reader.ask_and_wait()
        other = tmp_path / "other"
        other.write_bytes(bytes(len(log)))
        other.replace(log_file(running))
        assert records_in(reader.receive()) == log


def test_a_segment_that_somebody_shortens_ends_the_connection(running: BrokerThread) -> None:
    create_topic(running)
    log = fill(running, [900_000] * 8)
    with SlowReader(running) as reader:
        reader.ask_and_wait()
        os.truncate(log_file(running), 6_000_000)
        received = bytearray()
        try:
            while piece := reader.socket.recv(MIB):
                received += piece
        except ConnectionResetError:
            pass
    begin = received.index(log[:100])
    assert log.startswith(received[begin:])
    assert len(received) - begin <= 6_000_000


def test_a_range_that_sendfile_rejects_is_read_and_sent(
    running: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    monkeypatch.setattr(file_range.FileRange, "send_to", refuse)
    create_topic(running)
    log = fill(running, [900_000] * 8)
    with SlowReader(running) as reader:
        reader.ask_and_wait()
        assert records_in(reader.receive()) == log


def test_what_has_left_the_memory_meanwhile_is_read_by_another_thread(
    running: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(running)
    log = fill(running, [900_000] * 8)
    pieces: list[int] = []
    take = file_range.FileRange.take

    def counted(part: file_range.FileRange, byte_count: int) -> bytes:
        data = take(part, byte_count)
        pieces.append(len(data))
        return data

    monkeypatch.setattr(file_range.FileRange, "take", counted)
    monkeypatch.setattr(files, "STAYS_CACHED_S", 0)
    with SlowReader(running) as reader:
        reader.ask_and_wait()
        descriptor = os.open(log_file(running), os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        can_leave = not is_cached(descriptor, 0, len(log))
        os.close(descriptor)
        assert records_in(reader.receive()) == log
    assert pieces or not can_leave
    assert max(pieces, default=0) <= files.PIECE_READ_BYTES


def test_a_client_that_leaves_in_the_middle_leaves_no_descriptor_behind(
    running: BrokerThread,
) -> None:
    create_topic(running)
    fill(running, [900_000] * 8)
    before = open_descriptors()
    for _ in range(5):
        with SlowReader(running) as reader:
            reader.ask_and_wait()
        wait_until(lambda: OS_FILES.range_count == 0, "no range left")
    wait_until(lambda: open_descriptors() <= before, "no more descriptors than before")


def test_slow_readers_cost_hardly_any_memory(running: BrokerThread, long_form: bool) -> None:
    create_topic(running)
    log = fill(running, [900_000] * 8)
    count = 1_000 if long_form else 100
    before = resident_bytes()
    readers = [SlowReader(running) for _ in range(count)]
    try:
        for reader in readers:
            reader.send(framed(request_body(WHOLE, 11)))
        wait_until(lambda: OS_FILES.range_count == count, "the ranges of before")
        assert running.call(lambda: running.broker.network.unsent.total_bytes) == 0
        # What a connection itself takes, on both sides, is in it.
        assert resident_bytes() - before < count * 50_000
        assert records_in(readers[-1].receive()) == log
    finally:
        for reader in readers:
            reader.close()


def test_a_stop_lets_a_reader_take_its_answer(tmp_path: Path, loop_factory: LoopFactory) -> None:
    with BrokerThread(tmp_path, loop_factory=loop_factory) as running:
        create_topic(running)
        log = fill(running, [900_000] * 8)
        with SlowReader(running) as reader:
            reader.ask_and_wait()
            running.call(running.broker.network.stop_serving)
            assert records_in(reader.receive()) == log
            assert reader.is_closed()


def test_a_damaged_batch_is_sent_from_no_file(
    tmp_path: Path, loop_factory: LoopFactory, sent_from_files: list[int]
) -> None:
    with BrokerThread(tmp_path, loop_factory=loop_factory) as running:
        create_topic(running)
        log = fill(running, [300_000] * 6)
        path = log_file(running)
    ends = list(accumulate(len(batch) for _, batch in split_batches(log)))
    good, damaged = ends[3], ends[4]
    with path.open("r+b") as file:
        file.seek(damaged - 1_000)
        file.write(bytes([log[damaged - 1_000] ^ 1]))
    with BrokerThread(tmp_path, loop_factory=loop_factory) as running:
        with RawClient(running.port) as client:
            for _ in range(3):
                assert records_in(client.ask(WHOLE, 11)) == log[:good]
            answer = client.call(fetch((0, 4, MIB)), 11, m.FetchResponse)
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == ErrorCode.CORRUPT_MESSAGE
        assert not partition.records
    assert sum(sent_from_files) > good
