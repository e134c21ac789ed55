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


def run(port: int, pid: int, topic: str, seconds: float) -> Measured:
    """From the beginning to the end, in turns as either isolation level reads.

    Figures of a reader of committed records, and those of the other one behind ``plain``; `p99` is
    the slowest of a hundred answers.
    """
    end = committed_end(port, topic)
    if not end or end != count_records(port, [topic], 1):
        raise RuntimeError("not all transactions are decided")
    levels = _Level("plain ", committed=False), _Level("", committed=True)
    with connect(port) as connection:
        for level in levels:
            level.read(connection, pid, topic, end)
            level.forget()
        began_s = time.perf_counter()
        while time.perf_counter() < began_s + seconds:
            for level in levels:
                level.read(connection, pid, topic, end)
    return {**levels[0].figures(), **levels[1].figures()}


class _Level:
    """What reading with one isolation level has taken."""

    def __init__(self, name: str, *, committed: bool) -> None:
        self._name = name
        self._committed = committed
        self.forget()

    def forget(self) -> None:
        """Begin to count."""
        self._took_s: list[float] = []
        self._size_bytes = self._aborted = 0
        self._all_s = self._server_s = 0.0

    def read(self, connection: socket.socket, pid: int, topic: str, end: int) -> None:
        """Once from the beginning to the end."""
        server_s, began_s = cpu_s(pid), time.perf_counter()
        took_s, size_bytes, self._aborted = _read_once(
            connection, topic, end, committed=self._committed
        )
        self._all_s += time.perf_counter() - began_s
        self._server_s += cpu_s(pid) - server_s
        self._took_s += took_s
        self._size_bytes += size_bytes

    def figures(self) -> Measured:
        took_s, megabytes = sorted(self._took_s), self._size_bytes / 1e6
        found = {
            "rate": megabytes / self._all_s,
            "cpu": self._server_s / megabytes * 1e3,
            "p99": took_s[len(took_s) * 99 // 100] * 1e3,
            "aborted": self._aborted,
        }
        return {f"{self._name}{name}": value for name, value in found.items()}


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
