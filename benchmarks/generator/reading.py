"""A partition read over a socket, a megabyte at a time, by a reader that looks at headers only.

What a client does with the records would cost more than the broker does to send them.
"""

import socket
import time
from typing import Final

from benchmarks.generator.frames import connect, request_frame
from benchmarks.generator.topics import committed_end, count_records
from benchmarks.harness import Measured
from benchmarks.processes import cpu_s
from kohort.protocol.framing import ExpectedAnswer, decode_response_at
from kohort.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kohort.protocol.records.batch import iter_headers

_VERSION: Final = 12
_ANSWER_BYTES: Final = 1 << 20


def run(port: int, pid: int, topic: str, seconds: float, *, committed: bool) -> Measured:
    """From the beginning to the end, over and over. The slowest of a hundred answers is `p99`."""
    end = committed_end(port, topic)
    if not end or end != count_records(port, [topic], 1):
        raise RuntimeError("not all transactions are decided")
    with connect(port) as connection:
        _read_once(connection, topic, end, committed=committed)
        took, size_bytes, aborted = [], 0, 0
        server_s, own_s, began_s = cpu_s(pid), time.process_time(), time.perf_counter()
        while time.perf_counter() < began_s + seconds:
            passed = _read_once(connection, topic, end, committed=committed)
            took += passed[0]
            size_bytes += passed[1]
            aborted = passed[2]
        took_s = time.perf_counter() - began_s
        own_s, server_s = time.process_time() - own_s, cpu_s(pid) - server_s
    took.sort()
    megabytes = size_bytes / 1e6
    return {
        "rate": megabytes / took_s,
        "cpu": server_s / megabytes * 1e3,
        "generator": own_s / took_s * 100,
        "p50": took[len(took) // 2] * 1e3,
        "p99": took[len(took) * 99 // 100] * 1e3,
        "aborted": aborted,
    }


def _read_once(
    connection: socket.socket, topic: str, end: int, *, committed: bool
) -> tuple[list[float], int, int]:
    """How long each answer took, all their bytes, and how many transactions were told as aborted.

    A transaction that lies in two answers is told in both, and counted once.
    """
    took: list[float] = []
    aborted: set[int] = set()
    offset, size_bytes = 0, 0
    while offset < end:
        began_s = time.perf_counter()
        found = _fetch(connection, topic, offset, committed=committed)
        took.append(time.perf_counter() - began_s)
        if found.error_code or not found.records:
            raise RuntimeError(f"nothing at {offset} of {end}: error {found.error_code}")
        for _, header in iter_headers(found.records, partial_tail=True):
            if header.base_offset != offset:
                raise RuntimeError(f"{header.base_offset} where {offset} should be")
            offset = header.next_offset
            size_bytes += header.size_bytes
        aborted.update(one.first_offset for one in found.aborted_transactions or ())
    return took, size_bytes, len(aborted)


_answer: Final = bytearray(2 * _ANSWER_BYTES)
"""Used again for each answer."""


def _fetch(connection: socket.socket, topic: str, offset: int, *, committed: bool) -> PartitionData:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=_ANSWER_BYTES)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=_ANSWER_BYTES,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    connection.sendall(request_frame(request, _VERSION))
    view = memoryview(_answer)
    end, received = 4, 0
    while received < end:
        more = connection.recv_into(view[received:])
        if not more:
            raise RuntimeError("the broker closed the connection")
        received += more
        if received >= 4:
            end = 4 + int.from_bytes(view[:4], "big")
    answer: FetchResponse
    answer, _ = decode_response_at(view[:end], 4, ExpectedAnswer(1, FetchResponse, _VERSION))
    if answer.error_code:
        raise RuntimeError(f"a fetch was answered {answer.error_code}")
    (partition,) = answer.responses[0].partitions
    return partition
