"""What connections have to do in a turn of the loop, done kind by kind: read, execute, write.

A system call leaves the processor's caches and branch predictors to the kernel, and what Python
does next is slow until they are its own again. A connection that reads, executes and writes by
itself pays for that with every request: about as much as the request itself. So the sockets are
read first, as the loop finds them; then all requests that came are executed, and then all answers
are written. A request is still answered in the turn in which it came; what an answer need not wait
for is done when it is sent.

For clients that are not authenticated yet little is done in a turn, reads of their sockets
included, and their addresses take turns: a thousand that come together delay neither the others nor
one that comes from elsewhere.

A turn also ends by time. What it leaves is executed client by client, for as long as more is there
than a turn has time for: the largest requests of a hundred connections are ten seconds of work, of
which another client waits for one request.

Promises: a turn executes a bounded number of connections' requests; answers that wait to be written
are bounded in bytes; each connection's are written in their order; what was left for after an
answer is done before any request is executed that came after it.
"""

import asyncio
import sys
from collections.abc import Callable, Hashable
from typing import Final, Protocol

from kohort.broker.core.security.fair_queue import FairQueue
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Monotonic, RoundRobin, Slice

CONNECTIONS_PER_TURN: Final = 128
"""Connections whose requests are executed before control returns to the loop."""

ARRIVALS_PER_TURN: Final = 1
"""Reads and requests of connections that are not authenticated yet; a step of SCRAM costs as much
as several small requests."""

TURN_MS: Final = 10
"""Time after which a turn begins no more requests. Nearly all take a hundredth of it."""

UNWRITTEN_MAX_BYTES: Final = 4 * 1024 * 1024
"""Bytes of responses of all connections that may wait for the end of an iteration."""


DEPARTURES_PER_SLICE: Final = 3
"""Few, as a clock shows little of the cost: the loop closes in its next turns. Of ten, who asked
beside a thousand that left waited 0.23 ms in one of ten cases; of three 0.15."""


class Worker(Hashable, Protocol):
    """A connection, or what reads its socket."""

    @property
    def owner(self) -> str:
        """Owner of the address of its client."""
        ...

    def execute_due(self) -> None:
        """Execute the received requests, or read what is there. Must not raise."""
        ...


class ServedWorker(Worker, Protocol):
    """A connection whose client is authenticated, or need not be."""

    @property
    def client(self) -> Hashable:
        """The client, whichever of its connections this is."""
        ...


class Writer(Protocol):
    """The output of a connection."""

    def write_out(self) -> None:
        """Pass all responses to the transport. Must not raise."""
        ...


class Turns:
    """The queued work of one broker's connections."""

    __slots__ = (
        "_arrivals",
        "_clock",
        "_due",
        "_ends_ms",
        "_held_up",
        "_is_planned",
        "_left",
        "_loop",
        "_unwritten",
        "_unwritten_bytes",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._ends_ms: int | None = None
        """When the turn begins no more requests; None before its first."""
        self._due: list[ServedWorker] = []
        self._held_up: FairQueue[Hashable, ServedWorker] = FairQueue(sys.maxsize)
        """Due workers that a turn had no time for, and all that come while there are any, by
        client; a connection is there once, so their number is the bound."""
        self._arrivals: FairQueue[str, Worker] = FairQueue(sys.maxsize)
        """Arrived workers by owner of the address; a connection is there once, so their number is
        the bound."""
        self._unwritten: list[Writer] = []
        self._unwritten_bytes = 0
        self._left: list[Callable[[], None]] = []
        """Work for after the answers of this turn."""
        self._is_planned = False

    def execute_soon(self, worker: ServedWorker) -> None:
        """Have `execute_due` called; call this only once before that."""
        self._due.append(worker)
        if not self._is_planned:
            self._plan()

    def has_time(self) -> bool:
        """Whether a request may be executed at once, in the middle of the turn: if not, give it to
        `execute_soon`.
        """
        if self._held_up.count:
            return False
        if self._ends_ms is None:
            self._begin()
            if not self._is_planned:
                # It is the end of the turn.
                self._plan()
            return True
        return self._clock.monotonic_ms() < self._ends_ms

    def authenticate_soon(self, worker: Worker) -> None:
        """`execute_soon` for one that is not authenticated yet."""
        self._arrivals.add(worker.owner, worker)
        if not self._is_planned:
            self._plan()

    def forget(self, worker: Worker) -> None:
        """Remove a lost connection given to `authenticate_soon`: many may be lost in a turn."""
        self._arrivals.remove(worker.owner, worker)

    def write_soon(self, writer: Writer, byte_count: int) -> None:
        """Have `write_out` called; `byte_count` more bytes are waiting for it."""
        self._unwritten.append(writer)
        self._unwritten_bytes += byte_count
        if self._unwritten_bytes > UNWRITTEN_MAX_BYTES:
            self._write()
        elif not self._is_planned:
            self._plan()

    def after_answers(self, work: Callable[[], None]) -> None:
        """Have something done when the answers of this turn are sent; it must not raise."""
        self._left.append(work)
        if not self._is_planned:
            self._plan()

    def catch_up(self) -> None:
        """Do what was left; for who executes requests at once, before the first."""
        while self._left:
            left, self._left = self._left, []
            for work in left:
                work()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Schedule a callback; the returned handle can cancel it."""
        return self._loop.call_later(delay_ms / 1_000, callback)

    def _plan(self) -> None:
        self._is_planned = True
        self._loop.call_soon(self._run)

    def _begin(self) -> int:
        ends_ms = self._ends_ms = self._clock.monotonic_ms() + TURN_MS
        return ends_ms

    def _execute_due(self) -> None:
        due = self._due
        self._due = due[CONNECTIONS_PER_TURN:]
        # Asked after every request: the system's is no function of Python.
        now_s, ends_s = self._clock.monotonic_s, (self._ends_ms or self._begin()) / 1_000
        for position, worker in enumerate(due[:CONNECTIONS_PER_TURN], 1):
            worker.execute_due()
            if now_s() >= ends_s:
                # What became due meanwhile is behind it.
                self._due = [*due[position:], *self._due[max(len(due) - CONNECTIONS_PER_TURN, 0) :]]
                self._hold_up_due()
                return

    def _hold_up_due(self) -> None:
        due, self._due = self._due, []
        for worker in due:
            self._held_up.add(worker.client, worker)

    def _execute_held_up(self) -> None:
        """Execute what there is time for, one request at least, client by client."""
        self._hold_up_due()
        now_ms, ends_ms = self._clock.monotonic_ms, self._ends_ms or self._begin()
        for _ in range(CONNECTIONS_PER_TURN):
            self._held_up.take().execute_due()
            if not self._held_up.count or now_ms() >= ends_ms:
                return

    def _run(self) -> None:
        try:
            if self._held_up.count:
                self._execute_held_up()
            elif len(self._due) == 1:
                # Most turns: there is nothing that it could keep waiting.
                self._due.pop().execute_due()
            elif self._due:
                self._execute_due()
            if self._arrivals.count:
                self._let_some_in()
            self._write()
        finally:
            self._is_planned = False
            self._ends_ms = None
            if self._left:
                # The loop's transports send at the end of their turn. Requests that it finds then
                # are planned for behind this.
                self._loop.call_soon(self.catch_up)
            if self._due or self._held_up.count or self._arrivals.count or self._unwritten:
                self._plan()

    def _let_some_in(self) -> None:
        for _ in range(ARRIVALS_PER_TURN):
            if not self._arrivals.count:
                break
            self._arrivals.take().execute_due()

    def _write(self) -> None:
        unwritten, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        for writer in unwritten:
            writer.write_out()


class Departures:
    """Transports whose peers send nothing more; each is there once."""

    def __init__(self, clock: Monotonic) -> None:
        self._leaving: dict[asyncio.Transport, None] = {}
        self._slices = RoundRobin(clock, looks_max=DEPARTURES_PER_SLICE)

    def __len__(self) -> int:
        return len(self._leaving)

    def add(self, transport: asyncio.Transport) -> None:
        """Have it closed in the next turn of the loop, or a later one."""
        if not self._leaving:
            self._slices.add(self._close_some)
        self._leaving[transport] = None

    def _close_some(self, piece: Slice) -> bool:
        while self._leaving:
            transport = next(iter(self._leaving))
            del self._leaving[transport]
            # If it raises, this is called again, perhaps with none left.
            transport.close()
            if piece.is_over():
                break
        return bool(self._leaving)
