"""Requests about names that the asker may not see: each is a decision among the rules of others.

The generator gets what is left of the machine: what is measured beside it is the broker, and it is
to have as much to do as it can.
"""

import selectors
import socket
import time
from typing import Final

from benchmarks.generator.frames import RECEIVE_BYTES, read_answer, request_frame
from benchmarks.harness import Measured
from benchmarks.processes import stand_for_other_machines
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.support.measures.weights import LOWEST

SOURCE: Final = "127.0.0.2"
_VERSION: Final = 12
_AT_ONCE: Final = 32


class _Asker:
    """One connection that asks the same again and again, many questions at once."""

    def __init__(self, port: int, names: list[str]) -> None:
        self.socket = socket.create_connection(
            ("127.0.0.1", port), timeout=60, source_address=(SOURCE, 0)
        )
        self._frames = b"".join(
            request_frame(
                MetadataRequest(
                    topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
                ),
                _VERSION,
                number,
            )
            for number, name in enumerate(names)
        )
        self.socket.sendall(self._frames)
        self._expected = b"".join(self._one() for _ in names)
        self._received = b""

    def ask(self) -> None:
        self.socket.sendall(self._frames)

    def is_answered(self) -> bool:
        """Read what has come; whether all is there, as it was the first time."""
        self._received += self.socket.recv(RECEIVE_BYTES)
        if len(self._received) < len(self._expected):
            return False
        if self._received != self._expected:
            raise RuntimeError("an answer is not what it was")
        self._received = b""
        return True

    def _one(self) -> bytes:
        head = self.socket.recv(4, socket.MSG_WAITALL)
        size = int.from_bytes(head, "big")
        frame = head + self.socket.recv(size, socket.MSG_WAITALL)
        (topic,) = read_answer(frame, MetadataResponse, _VERSION).topics
        if topic.error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise RuntimeError(f"{topic.name} is not denied: {topic.error_code}")
        return frame


def run(port: int, connections: int, seconds: float) -> Measured:
    """Requests a second."""
    stand_for_other_machines(LOWEST)
    ends_s = time.perf_counter() + seconds
    askers = [
        _Asker(port, [f"tenant-{number}.{asked}" for asked in range(_AT_ONCE)])
        for number in range(connections)
    ]
    selector = selectors.DefaultSelector()
    for one in askers:
        selector.register(one.socket, selectors.EVENT_READ, one)
        one.ask()
    count, began_s = 0, time.perf_counter()
    while time.perf_counter() < ends_s:
        for key, _ in selector.select(1):
            if key.data.is_answered():
                count += _AT_ONCE
                key.data.ask()
    took_s = time.perf_counter() - began_s
    for one in askers:
        one.socket.close()
    return {"rate": count / took_s}
