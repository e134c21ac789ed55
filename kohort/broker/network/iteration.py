"""Runs every event loop iteration in phases: read all sockets, execute all requests, write all
responses.

A system call leaves the processor's caches and branch predictors to the kernel, and the Python code
after it is slow until they are filled again. A connection that reads, executes and writes alone
pays for that with every request, about as much as the request itself costs. Therefore the event
loop reads all sockets first; one callback then executes all requests and writes all responses. A
request is still answered in the iteration in which it arrived.

Requests of unauthenticated clients have a queue of their own, round robin over address blocks: a
thousand clients that log in together delay neither established clients nor a client that logs in
from another address block.

An iteration is also limited in time. Requests that do not fit form a backlog, executed round robin
over clients: if a hundred connections of one client send the largest requests, serving all takes
ten seconds, but another client waits for only one of them.

Guarantees: an iteration executes the requests of a bounded number of connections; the bytes of
responses to be written are bounded; each connection's responses are written in order; work that was
scheduled for after a response runs before any request that arrived after that response.
"""

import asyncio
import sys
from collections.abc import Callable, Hashable
from typing import Final, Protocol

from kohort.broker.core.security.fair_queue import FairQueue
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.slices import Monotonic, RoundRobin, Slice

CONNECTIONS_PER_ITERATION: Final = 128
"""Connections whose requests are executed before control returns to the event loop."""

UNAUTHENTICATED_PER_ITERATION: Final = 1
"""Unauthenticated connections executed per iteration: a SCRAM message costs as much as several
small requests."""

ITERATION_MS: Final = 10
"""Time after which an iteration starts no more requests; usually it takes a hundredth of that."""

UNWRITTEN_MAX_BYTES: Final = 4 * 1024 * 1024
"""Maximum total bytes of responses that are held back until the end of an iteration."""

DISCONNECTS_PER_SLICE: Final = 3
"""Transports closed per iteration: few, because asyncio does most of the work of closing in later
iterations. While 1,000 clients disconnect, the p90 latency of another client is 0.15 ms with 3, and
0.23 ms with 10."""


class PendingConnection(Hashable, Protocol):
    @property
    def address_block(self) -> str: ...

    @property
    def client(self) -> Hashable:
        """Identifies the client; equal for all connections of one client."""
        ...

    def run(self) -> None:
        """Execute the received requests. Must not raise."""
        ...


class Writer(Protocol):
    def write_out(self) -> None:
        """Pass all responses to the transport. Must not raise."""
        ...


class IterationScheduler:
    """Schedules the requests and responses of all connections."""

    __slots__ = (
        "_after_writes",
        "_backlog",
        "_clock",
        "_ends_ms",
        "_is_scheduled",
        "_loop",
        "_pending",
        "_unauthenticated",
        "_unwritten",
        "_unwritten_bytes",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._ends_ms: int | None = None
        """Time after which this iteration starts no more requests; None before the first one."""
        self._pending: list[PendingConnection] = []
        self._backlog: FairQueue[Hashable, PendingConnection] = FairQueue(sys.maxsize)
        """Connections deferred for lack of time, by client. Unless it is empty, newly scheduled
        connections are appended, too. Bounded: a connection is queued at most once."""
        self._unauthenticated: FairQueue[str, PendingConnection] = FairQueue(sys.maxsize)
        """Unauthenticated connections to run, by address block; each is queued at most once."""
        self._unwritten: list[Writer] = []
        self._unwritten_bytes = 0
        self._after_writes: list[Callable[[], None]] = []
        """Callbacks to call after the responses have been sent."""
        self._is_scheduled = False
        """Whether the event loop will call `_run`."""

    def schedule(self, connection: PendingConnection) -> None:
        """Call `connection.run` in this iteration or a later one."""
        self._pending.append(connection)
        if not self._is_scheduled:
            self._schedule_run()

    def schedule_unauthenticated(self, connection: PendingConnection) -> None:
        """Call `run` of an unauthenticated connection in this iteration or a later one."""
        self._unauthenticated.add(connection.address_block, connection)
        if not self._is_scheduled:
            self._schedule_run()

    def remove_unauthenticated(self, connection: PendingConnection) -> None:
        """Remove a closed connection from its queue, so that a mass disconnect leaves it short."""
        self._unauthenticated.remove(connection.address_block, connection)

    def has_time(self) -> bool:
        """Whether a connection may execute a request at once, in the read phase, without
        `schedule`.
        """
        if self._backlog.count:
            return False
        if self._ends_ms is None:
            self._start_time()
            if not self._is_scheduled:
                # Even if no connection is scheduled, `_run` must reset `_ends_ms`.
                self._schedule_run()
            return True
        return self._clock.monotonic_ms() < self._ends_ms

    def schedule_write(self, writer: Writer, byte_count: int) -> None:
        """Call `writer.write_out` in this iteration; the writer has `byte_count` more bytes to
        write.
        """
        self._unwritten.append(writer)
        self._unwritten_bytes += byte_count
        if self._unwritten_bytes > UNWRITTEN_MAX_BYTES:
            self._write()
        elif not self._is_scheduled:
            self._schedule_run()

    def after_writes(self, callback: Callable[[], None]) -> None:
        """Call a function after this iteration's responses have been sent; it must not raise."""
        self._after_writes.append(callback)
        if not self._is_scheduled:
            self._schedule_run()

    def run_after_writes(self) -> None:
        """Call the waiting `after_writes` callbacks; needed before a request in the read phase."""
        while self._after_writes:
            callbacks, self._after_writes = self._after_writes, []
            for callback in callbacks:
                callback()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Schedule a callback; the returned handle can cancel it."""
        return self._loop.call_later(delay_ms / 1_000, callback)

    def _schedule_run(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._run)

    def _start_time(self) -> int:
        ends_ms = self._ends_ms = self._clock.monotonic_ms() + ITERATION_MS
        return ends_ms

    def _run(self) -> None:
        try:
            if self._backlog.count:
                self._run_backlog()
            elif len(self._pending) == 1:
                # The usual case, without a time limit: a single connection can delay no other.
                self._pending.pop().run()
            elif self._pending:
                self._run_pending()
            if self._unauthenticated.count:
                self._run_unauthenticated()
            self._write()
        finally:
            self._is_scheduled = False
            self._ends_ms = None
            if self._after_writes:
                # uvloop's transports send at the end of an iteration. The loop then runs this
                # callback before it reads further requests.
                self._loop.call_soon(self.run_after_writes)
            if (
                self._pending
                or self._backlog.count
                or self._unauthenticated.count
                or self._unwritten
            ):
                self._schedule_run()

    def _run_pending(self) -> None:
        pending = self._pending
        self._pending = pending[CONNECTIONS_PER_ITERATION:]
        # The clock is read after each connection: with the system's clock, by a C function.
        now_s, ends_s = self._clock.monotonic_s, (self._ends_ms or self._start_time()) / 1_000
        for position, connection in enumerate(pending[:CONNECTIONS_PER_ITERATION], 1):
            connection.run()
            if now_s() >= ends_s:
                # Connections that were scheduled during the loop come last.
                scheduled = self._pending[max(len(pending) - CONNECTIONS_PER_ITERATION, 0) :]
                self._pending = [*pending[position:], *scheduled]
                self._move_to_backlog()
                return

    def _move_to_backlog(self) -> None:
        pending, self._pending = self._pending, []
        for connection in pending:
            self._backlog.add(connection.client, connection)

    def _run_backlog(self) -> None:
        """Run deferred connections round robin over clients until time is up, but at least one."""
        self._move_to_backlog()
        now_ms, ends_ms = self._clock.monotonic_ms, self._ends_ms or self._start_time()
        for _ in range(CONNECTIONS_PER_ITERATION):
            self._backlog.take().run()
            if not self._backlog.count or now_ms() >= ends_ms:
                return

    def _run_unauthenticated(self) -> None:
        for _ in range(UNAUTHENTICATED_PER_ITERATION):
            if not self._unauthenticated.count:
                break
            self._unauthenticated.take().run()

    def _write(self) -> None:
        unwritten, self._unwritten, self._unwritten_bytes = self._unwritten, [], 0
        for writer in unwritten:
            writer.write_out()


class DisconnectQueue:
    """Closes the transports of disconnected clients in batches.

    Closing a transport costs 20 us, mostly in the event loop and the kernel. A process with a
    thousand connections, or a thousand clients behind a load balancer, may disconnect at once;
    closing all of them in the iteration that reads this would delay every other client.
    """

    def __init__(self, clock: Monotonic) -> None:
        self._transports: dict[asyncio.Transport, None] = {}
        self._slices = RoundRobin(clock, checks_max=DISCONNECTS_PER_SLICE)

    def __len__(self) -> int:
        return len(self._transports)

    def add(self, transport: asyncio.Transport) -> None:
        """Close the transport in the next iteration or a later one."""
        if not self._transports:
            self._slices.add(self._close_some)
        self._transports[transport] = None

    def _close_some(self, time_slice: Slice) -> bool:
        while self._transports:
            transport = next(iter(self._transports))
            del self._transports[transport]
            # If `close` raises, `RoundRobin` calls this method again, even with no transport left.
            transport.close()
            if time_slice.is_over():
                break
        return bool(self._transports)
