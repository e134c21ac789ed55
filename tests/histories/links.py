"""Connections that may be cut at any time, and requests that go on until they are answered."""

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from kohort.protocol.errors import ErrorCode
from kohort.protocol.message import RESPONSES, schema_of
from tests.support.network.wire import RawClient

WAIT_S: Final = 30
"""A broker that starts or stands still is waited for."""
TIMEOUT_S: Final = 2
"""An answer is; then it is asked for on another connection."""
PAUSE_S: Final = 0.01

_PASSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""What a broker answers that is to be asked again."""


CodeOf = Callable[[Any], int]
"""The error in an answer."""


class LostError(Exception):
    """No answer: the request may have been acted on, or may be yet."""


class RefusedError(Exception):
    """An answer that repetition does not change."""

    def __init__(self, code: int, *, was_lost: bool) -> None:
        self.code = code
        self.was_lost = was_lost
        """An answer to the same request was lost before; it may have been another one."""
        super().__init__(ErrorCode(code).name)


class Links:
    """All connections of a run."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.refusals: Counter[str] = Counter()
        """By api and code."""
        self._open: set[Link] = set()
        self._lock = threading.Lock()

    def add(self, link: "Link") -> None:
        with self._lock:
            self._open.add(link)

    def remove(self, link: "Link") -> None:
        with self._lock:
            self._open.discard(link)

    def note_refusal(self, request: object, code: int) -> None:
        """For the report: which answers clients got that they had to act on."""
        name = type(request).__name__.removesuffix("Request")
        self.refusals[f"{name} {ErrorCode(code).name}"] += 1

    def cut(self, chance: random.Random, share: float) -> int:
        """End a share of them, some in the midst of what is on its way; how many."""
        with self._lock:
            chosen = [link for link in self._open if chance.random() < share]
        for link in chosen:
            link.cut(is_reset=chance.random() < 0.5)
        return len(chosen)


class Link:
    """One client's connection, made when it is needed. Used by one thread, cut by another."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._client: RawClient | None = None
        self._is_reset = False

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            self._links.remove(self)
            if self._is_reset:
                # What the broker has not read yet, it never reads.
                client.socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
            client.close()
        self._is_reset = False

    def cut(self, *, is_reset: bool) -> None:
        """End it; the broker gets what was sent, unless the connection is reset."""
        client = self._client
        if client is not None:
            self._is_reset = is_reset
            with contextlib.suppress(OSError):
                client.socket.shutdown(socket.SHUT_RD if is_reset else socket.SHUT_RDWR)

    def ask(self, request: object, version: int) -> Any:  # noqa: ANN401 - of the request.
        """The answer. Raises LostError."""
        key = schema_of(type(request)).key
        assert key is not None
        try:
            if self._client is None:
                self._client = RawClient(self._links.port, timeout_s=TIMEOUT_S)
                self._links.add(self)
            return self._client.call(request, version, RESPONSES[key])
        except OSError as error:
            self.close()
            raise LostError(type(request).__name__) from error

    def insist(
        self,
        request: object,
        version: int,
        code_of: CodeOf,
        *,
        wait_s: float = WAIT_S,
    ) -> tuple[Any, bool]:
        """The answer, and whether others to this request were lost before.

        Args:
            code_of: the error in an answer.

        Raises:
            RefusedError, LostError: not in all that time.
        """
        deadline_s = time.monotonic() + wait_s
        was_lost = False
        while True:
            try:
                answer = self.ask(request, version)
            except LostError:
                was_lost = True
                if time.monotonic() > deadline_s:
                    raise
            else:
                code = code_of(answer)
                if not code:
                    return answer, was_lost
                if code not in _PASSING or time.monotonic() > deadline_s:
                    self._links.note_refusal(request, code)
                    raise RefusedError(code, was_lost=was_lost)
            time.sleep(PAUSE_S)
