"""Uploads that hold the memory for requests and drip, over real sockets. Their rules are tested on
virtual time, in tests/unit/broker/network/test_shortage.py.
"""

import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.kohort_server import KohortServer
from tests.support.network.wire import RawClient, framed, header

MB = 1_000_000
ANSWER_S_MAX = 20.0
"""0.6 s are promised, of a machine that has nothing else to do. The uploads take half a minute."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[KohortServer]:
    overrides = {"queued.max.request.bytes": str(16 * MB)}
    with KohortServer(tmp_path, overrides=overrides) as server:
        yield server


class Dripping:
    """Most of a frame at once, and then enough to look alive."""

    def __init__(self, port: int, number: int) -> None:
        self.client = RawClient(port, source=f"127.0.0.{2 + number}")
        self.client.socket.setblocking(False)
        self.data = memoryview(struct.pack(">i", 20 * MB) + bytes(19 * MB))
        self.allowed_bytes = 3 * MB
        self.next_s = time.monotonic() + 1

    def drip(self) -> None:
        if time.monotonic() >= self.next_s:
            self.allowed_bytes += MB // 2
            self.next_s += 1
        sent = len(struct.pack(">i", 0)) + 19 * MB - len(self.data)
        try:
            while sent < self.allowed_bytes:
                count = self.client.socket.send(self.data[: self.allowed_bytes - sent])
                self.data = self.data[count:]
                sent += count
        except OSError:
            # Full, or closed by the broker.
            return


def test_requests_of_200_kb_are_answered_beside_uploads_that_hold_all_memory(
    server: KohortServer,
) -> None:
    attackers = [Dripping(server.port, number) for number in range(6)]
    begin = header(18, 0)
    request = framed(begin + bytes(200_000 - len(begin)))
    deadline_s = time.monotonic() + 2
    while time.monotonic() < deadline_s:
        for attacker in attackers:
            attacker.drip()
        time.sleep(0.05)
    with RawClient(server.port, timeout_s=ANSWER_S_MAX) as honest:
        for _ in range(10):
            # So that room for it has to be asked for.
            honest.send(request[:100_000])
            time.sleep(0.05)
            for attacker in attackers:
                attacker.drip()
            honest.send(request[100_000:])
            assert honest.receive()
    for attacker in attackers:
        attacker.client.close()
