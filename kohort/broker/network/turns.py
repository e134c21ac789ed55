"""What connections have to do in a turn of the loop, done kind by kind: read, execute, write.

A system call leaves the processor's caches and branch predictors to the kernel, and what Python
does next is slow until they are its own again. A connection that reads, executes and writes by
itself pays for that with every request: about as much as the request itself. So the sockets are
read first, as the loop finds them; then all requests that came are executed, and then all answers
are written. A request is still answered in the turn in which it came.

Promises: a turn executes a bounded number of connections' requests; answers that wait to be written
are bounded in bytes; each connection's are written in their order.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

CONNECTIONS_PER_TURN: Final = 128
"""Whose requests are executed before the loop is looked at again."""

UNWRITTEN_MAX_BYTES: Final = 4 * 1024 * 1024
"""Answers of all connections that may wait for the end of a turn."""


class Worker(Protocol):
    """A connection."""

    def execute_due(self) -> None:
        """Execute the requests that are here. Must not raise."""
        ...

    def write_out(self) -> None:
        """Hand all answers to the transport. Must not raise."""
        ...


class Turns:
    """The work of one broker's connections that waits for its part of the turn."""

    __slots__ = ("_due", "_is_planned", "_loop", "_unwritten", "_unwritten_bytes")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._due: list[Worker] = []
        self._unwritten: list[Worker] = []
        self._unwritten_bytes = 0
        self._is_planned = False

    def execute_soon(self, worker: Worker) -> None:
        """Have `execute_due` called; not to be said again before that."""
        self._due.append(worker)
        if not self._is_planned:
            self._plan()

    def write_soon(self, worker: Worker, byte_count: int) -> None:
        """Have `write_out` called; `byte_count` more are waiting for it."""
        self._unwritten.append(worker)
        self._unwritten_bytes += byte_count
        if self._unwritten_bytes > UNWRITTEN_MAX_BYTES:
            self._write()
        elif not self._is_planned:
            self._plan()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Have something done in a later turn; the handle can take that back."""
        return self._loop.call_later(delay_ms / 1_000, callback)

    def _plan(self) -> None:
        self._is_planned = True
        self._loop.call_soon(self._run)

    def _run(self) -> None:
        due = self._due
        self._due = due[CONNECTIONS_PER_TURN:]
        try:
            for worker in due[:CONNECTIONS_PER_TURN]:
                worker.execute_due()
            self._write()
        finally:
            self._is_planned = False
            if self._due or self._unwritten:
                self._plan()

    def _write(self) -> None:
        unwritten, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        for worker in unwritten:
            worker.write_out()
