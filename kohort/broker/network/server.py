"""Accepts connections, shares out what they share, and ends them in good order.

Promises: `close` answers the requests that are under way, sends what was written and returns within
its grace, whatever the clients do; no look at the connections takes the loop for longer than one
slice of them.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Iterable, Iterator
from functools import partial

from kohort.broker.network.admission import Admission
from kohort.broker.network.arrivals import Arrivals
from kohort.broker.network.connection import Connection
from kohort.broker.network.file_sending import Reads
from kohort.broker.network.frames import RECEIVE_BUFFER_BYTES
from kohort.broker.network.last_fetches import LastFetches
from kohort.broker.network.limits import NetworkLimits
from kohort.broker.network.listener import Listener
from kohort.broker.network.memory import RequestMemory, UnsentBytes
from kohort.broker.network.metrics import NetworkMetrics
from kohort.broker.network.peer_log import PeerLog
from kohort.broker.network.service import Service
from kohort.broker.network.shortage import LOOK_INTERVAL_MS, Shortage
from kohort.broker.network.timeouts import CloseReason, ServingTime
from kohort.broker.network.tls_connection import (
    CIPHERTEXT_BUFFER_BYTES,
    Handshakes,
    TlsConnection,
)
from kohort.broker.network.turns import Turns
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.memory.trim import give_back_free_memory
from kohort.broker.runtime.slices import Slice

logger = logging.getLogger(__name__)

CHECK_INTERVAL_MS_MAX = 1_000
CHECKS_PER_TIMEOUT = 10

LARGE_REQUESTS_BYTES = 4 * 1024 * 1024
"""What requests of ordinary sizes leave behind is used again by the next."""


class NetworkServer:
    """All listeners and connections of one broker. Make it inside the running loop."""

    def __init__(
        self,
        service: Service,
        limits: NetworkLimits,
        *,
        clock: Clock,
        metrics: NetworkMetrics,
        log: PeerLog,
        fetches: LastFetches | None = None,
    ) -> None:
        self.service = service
        self.limits = limits
        self.metrics = metrics
        self.log = log
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        """One for all: nothing is left in it between two reads."""
        self.memory = RequestMemory(limits.queued_max_request_bytes, self._look_soon)
        self.unsent = UnsentBytes(limits.kohort_unsent_max_bytes)
        self.fetches = fetches or LastFetches(clock)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.turns = Turns(self._loop)
        self.reads = Reads(self._loop)
        self.sends_files = False
        """Until there are sockets; how the kernel sends files is particular to Linux."""
        self.ciphertext_buffer = memoryview(b"")
        """Another one for all, into which sockets with TLS are read; made when there are such."""
        self.handshakes = Handshakes(self._loop)
        self._admission = Admission(limits)
        self._arrivals: Arrivals[Connection] = Arrivals()
        self._connections: dict[Connection, None] = {}
        self._accepting: list[asyncio.Server] = []
        self._check_handle: asyncio.Handle | None = None
        self._serving_time = ServingTime()
        self._shortage = Shortage(self.memory)
        self._look_handle: asyncio.Handle | None = None
        self._had_large_requests = False
        self._is_stopping = False
        self._all_gone: asyncio.Future[None] | None = None

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def set_limits(self, limits: NetworkLimits) -> None:
        """These hold from now on; clients that are connected stay, however many they are."""
        self.limits = self._admission.limits = limits

    async def listen(self, sockets: Iterable[socket.socket], listener: Listener) -> None:
        """Accept connections from bound sockets, which are the server's from now on."""
        self.sends_files = sys.platform == "linux"
        if listener.tls is not None and not self.ciphertext_buffer:
            self.ciphertext_buffer = memoryview(bytearray(CIPHERTEXT_BUFFER_BYTES))
        for one in sockets:
            accepting = await self._loop.create_server(
                partial(self._new_connection, listener),
                sock=one,
                backlog=self.limits.socket_listen_backlog_size,
            )
            self._accepting.append(accepting)
        if self._check_handle is None:
            self._check_later()

    def stop_accepting(self) -> None:
        """Refuse new connections; those that are open are served on."""
        self._is_stopping = True
        for one in self._accepting:
            one.close()
        self._accepting = []

    def stop_serving(self) -> None:
        """Begin no more requests; connections without one under way end now."""
        self.stop_accepting()
        for connection in list(self._connections):
            connection.stop()

    async def close(self, grace_ms: int) -> None:
        """Let requests under way end and their answers be sent, for so long; then close all."""
        self.stop_serving()
        if self._connections:
            await self._wait_all_gone(grace_ms)
        if self._connections:
            logger.warning("%d connections did not end in time", len(self._connections))
            for connection in list(self._connections):
                connection.abort()
            await self._wait_all_gone(grace_ms)
        if self._check_handle is not None:
            self._check_handle.cancel()
        if self._look_handle is not None:
            self._look_handle.cancel()

    def abort(self) -> None:
        """Accept nothing and close all connections, whatever is under way; as a crash would."""
        self.stop_accepting()
        for connection in list(self._connections):
            connection.abort()

    # For the connections.

    def connection_made(self, connection: Connection) -> str | None:
        if self._is_stopping:
            return "shutdown"
        refused_by = self._admission.admit(connection.ip)
        if refused_by is not None:
            return refused_by
        self._connections[connection] = None
        if connection.listener.lets_in_later:
            now_ms = self._serving_time.at(self._clock.monotonic_ms())
            count_max = self.limits.kohort_unauthenticated_connections_max
            oldest = self._arrivals.add(connection, now_ms, count_max)
            if oldest is not None:
                self._turn_away(oldest, CloseReason.UNAUTHENTICATED_LIMIT)
        return None

    def let_in(self, connection: Connection) -> None:
        self._arrivals.remove(connection)

    def connection_lost(self, connection: Connection) -> None:
        self._arrivals.remove(connection)
        del self._connections[connection]
        self._admission.release(connection.ip)
        if not self._connections and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)

    # Within.

    def _new_connection(self, listener: Listener) -> asyncio.BufferedProtocol:
        connection = Connection(self, listener)
        if listener.tls is None:
            return connection
        return TlsConnection(self, connection, listener.tls.context, listener.tls.established)

    def _turn_away(self, connection: Connection, reason: CloseReason) -> None:
        self._arrivals.remove(connection)
        connection.close_arrival(reason)

    async def _wait_all_gone(self, time_ms: int) -> None:
        self._all_gone = self._loop.create_future()
        await asyncio.wait([self._all_gone], timeout=time_ms / 1000)

    def _check_later(self) -> None:
        shortest_ms = min(
            timeout_ms
            for timeout_ms in (
                self.limits.connections_max_idle_ms,
                self.limits.kohort_frame_timeout_ms,
                self.limits.kohort_authentication_timeout_ms,
                CHECK_INTERVAL_MS_MAX * CHECKS_PER_TIMEOUT,
            )
            if timeout_ms >= 0
        )
        interval_ms = max(shortest_ms, CHECKS_PER_TIMEOUT) // CHECKS_PER_TIMEOUT
        self._serving_time.plan(self._clock.monotonic_ms() + interval_ms)
        self._check_handle = self._loop.call_later(interval_ms / 1000, self._begin_check)

    def _look_soon(self) -> None:
        """A connection waits for memory. Called from within a read, so nothing is ended here."""
        if self._look_handle is None:
            self._look_handle = self._loop.call_soon(self._look_at_shortage)

    def _look_at_shortage(self) -> None:
        """Again and again while a connection waits, and once more to see that it is over."""
        self._look_handle = None
        for upload in self._shortage.look(self._clock.monotonic_ms()):
            upload.evict()
        if self._shortage.lasts:
            self._look_handle = self._loop.call_later(
                LOOK_INTERVAL_MS / 1000, self._look_at_shortage
            )

    def _begin_check(self) -> None:
        self._serving_time.resume(self._clock.monotonic_ms())
        self._give_back_memory()
        now_ms = self._serving_time.at(self._clock.monotonic_ms())
        timeout_ms = self.limits.kohort_authentication_timeout_ms
        for connection in list(self._arrivals.overdue(now_ms, timeout_ms)):
            self._turn_away(connection, CloseReason.AUTHENTICATION_TIMEOUT)
        self._check_some(iter(list(self._connections)))

    def _give_back_memory(self) -> None:
        """Once there are no more large requests, see that what they took does not stay with us.

        Room grows with what arrives, so a large frame leaves gaps of many sizes in the heap, and
        anything small that was made meanwhile keeps the heap's end where it is.
        """
        has_large_requests = self.memory.take_most_bytes() >= LARGE_REQUESTS_BYTES
        if self._had_large_requests and not has_large_requests:
            self._loop.run_in_executor(None, give_back_free_memory)
        self._had_large_requests = has_large_requests

    def _check_some(self, left: Iterator[Connection]) -> None:
        """Look at the next slice of the connections there were, those that are gone included."""
        now_ms = self._serving_time.at(self._clock.monotonic_ms())
        piece = Slice(self._clock)
        for connection in left:
            connection.check(now_ms)
            if piece.is_over():
                self._check_handle = self._loop.call_soon(self._check_some, left)
                return
        self._check_later()
