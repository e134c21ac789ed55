"""Accepts connections, holds their shared resources, and closes them in order.

Guarantees: `close` answers the requests in progress, sends what was written and returns within its
grace period, whatever clients do; periodic checks of the connections block the loop for at most one
slice of them at a time.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice

from kohort.broker.core.security.quotas import CONNECTION
from kohort.broker.core.security.session import Session
from kohort.broker.network.connection.connection import Connection, Listener, Refusal
from kohort.broker.network.connection.files import Reads
from kohort.broker.network.connection.frames import RECEIVE_BUFFER_BYTES
from kohort.broker.network.connection.limits import UNLIMITED, Activity, NetworkLimits
from kohort.broker.network.iteration import DEPARTURES_PER_SLICE, Departures, Turns
from kohort.broker.network.memory import (
    POLICY_INTERVAL_MS,
    RequestMemoryBudget,
    SlowUploadPolicy,
    UnsentBytes,
)
from kohort.broker.network.metrics import NetworkMetrics
from kohort.broker.network.server.accepting import Accepting
from kohort.broker.network.server.admission import Admission, ConnectionRates
from kohort.broker.network.server.unauthenticated import Arrivals
from kohort.broker.network.service import Service
from kohort.broker.network.timeouts import CloseReason, ServingTime
from kohort.broker.network.tls.connection import CIPHERTEXT_BUFFER_BYTES, TlsConnection
from kohort.broker.network.tls.handshakes import THREADS, Handshakes
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.lower_threads import LowerThreads, Threads
from kohort.broker.runtime.memory.trim import give_back_free_memory
from kohort.broker.runtime.peer_log import PeerLog
from kohort.broker.runtime.slices import Slice

logger = logging.getLogger(__name__)

CHECK_INTERVAL_MS_MAX = 1_000
CHECKS_PER_TIMEOUT = 10
CHECKS_PER_SLICE = 200
"""Connections that are checked before control returns to the loop: 0.3 ms."""

HELD_MAX = 1_000
"""Connections of addresses that exceed their rate, each kept for at most a second; further ones are
closed at once."""

LARGE_REQUESTS_BYTES = 4 * 1024 * 1024
"""Memory left by requests below this size is reused by the next."""

CROWD = 100
"""Connections whose memory is given back when they are gone; with TLS each had some 50 KiB."""
STRAGGLERS = 10
"""A crowd is gone when fewer than this have left between two checks."""


class NetworkServer:
    """All listeners and connections of one broker. Create it inside the running loop."""

    def __init__(
        self,
        service: Service,
        limits: NetworkLimits,
        *,
        clock: Clock,
        metrics: NetworkMetrics,
        log: PeerLog,
        activity: Activity | None = None,
        limit_of_ip: Callable[[str], float | None] = lambda _: None,
        senders_max: int = UNLIMITED,
        handshake_threads: Threads | None = None,
    ) -> None:
        """`limit_of_ip` returns how many connections per second an address may make; `senders_max`
        limits the connections with a second descriptor for sending files; `handshake_threads`
        default to two of a lower priority.
        """
        self.service = service
        self.limits = limits
        self.metrics = metrics
        self.log = log
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        """Shared by all connections: nothing is left in it between two reads."""
        self.memory = RequestMemoryBudget(limits.queued_max_request_bytes, self._on_memory_shortage)
        self.unsent = UnsentBytes(limits.kohort_unsent_max_bytes)
        self.activity = activity or Activity(clock)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.turns = Turns(self._loop, clock)
        self.departures = Departures(clock)
        self.reads = Reads(self._loop, senders_max)
        self.sends_files = False
        """Whether the kernel can send files; set with the first sockets, since it needs Linux."""
        self.ciphertext_buffer = memoryview(b"")
        """A second shared buffer, for ciphertext of TLS connections; created when needed."""
        self.handshakes = Handshakes(handshake_threads or LowerThreads("tls", THREADS))
        self._admission = Admission(limits)
        self._arrivals: Arrivals[Connection] = Arrivals()
        self._connections: dict[Connection, None] = {}
        self._rates = ConnectionRates(limits, limit_of_ip)
        self._held: dict[Connection, asyncio.TimerHandle] = {}
        """Connections that are not served and will be closed soon."""
        self._accepting: dict[str, list[Accepting]] = {}
        """Sockets that accept connections, by listener."""
        self._check_handle: asyncio.Handle | None = None
        self._serving_time = ServingTime()
        self._upload_policy = SlowUploadPolicy(self.memory)
        self._policy_handle: asyncio.Handle | None = None
        self._had_large_requests = False
        self._lost_count = 0
        """Connections lost since the last check."""
        self._lost_of_crowd = 0
        """The same since memory was given back, up to the last check."""
        self._is_stopping = False
        self._all_gone: asyncio.Future[None] | None = None

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def set_limits(self, limits: NetworkLimits) -> None:
        """Apply new limits; connected clients stay, however many there are."""
        self.limits = self._admission.limits = self._rates.limits = limits

    async def listen(self, sockets: Iterable[socket.socket], listener: Listener) -> None:
        """Accept connections from bound sockets, which the server then owns."""
        self.sends_files = sys.platform == "linux"
        if listener.tls is not None and not self.ciphertext_buffer:
            self.ciphertext_buffer = memoryview(bytearray(CIPHERTEXT_BUFFER_BYTES))
        for one in sockets:
            accepting = Accepting(
                one,
                partial(self._new_connection, listener),
                backlog=self.limits.socket_listen_backlog_size,
            )
            self._accepting.setdefault(listener.name, []).append(accepting)
            await accepting.open()
        if self._check_handle is None:
            self._check_later()

    def stop_accepting(self) -> None:
        """Refuse new connections; open ones continue to be served."""
        self._is_stopping = True
        for one in chain(*self._accepting.values()):
            one.close()
        self._accepting = {}
        for held in list(self._held):
            self._drop(held)

    def stop_serving(self) -> None:
        """Start no more requests; connections without one in progress are closed now."""
        self.stop_accepting()
        for connection in list(self._connections):
            connection.stop()

    async def close(self, grace_ms: int) -> None:
        """Give requests in progress `grace_ms` to finish and their responses to be sent; then close
        all.
        """
        self.stop_serving()
        if self._connections:
            await self._wait_all_gone(grace_ms)
        if self._connections:
            logger.warning("Connections that did not end in time: %d", len(self._connections))
            for connection in list(self._connections):
                connection.abort()
            await self._wait_all_gone(grace_ms)
        self.handshakes.close()
        if self._check_handle is not None:
            self._check_handle.cancel()
        if self._policy_handle is not None:
            self._policy_handle.cancel()

    def abort(self) -> None:
        """Stop accepting and close all connections at once, whatever is in progress, as a crash
        would.
        """
        self.stop_accepting()
        for connection in list(self._connections):
            connection.abort()
        self.handshakes.close()

    def disconnect(self, is_meant: Callable[[Session], bool]) -> None:
        """Close the connections whose session is meant, with all that they wait for."""
        for connection in list(self._connections):
            if is_meant(connection.info.session):
                connection.abort_because(CloseReason.AUTHENTICATION)

    # Called by connections.

    def connection_made(self, connection: Connection) -> Refusal | None:
        if self._is_stopping:
            return Refusal("shutdown")
        throttle_ms = self._rates.of_ip(connection.ip, self._clock.monotonic_ms())
        if throttle_ms:
            return Refusal(CONNECTION, is_held=self._hold(connection, throttle_ms))
        refused_by = self._admission.admit(connection.ip, connection.listener.name)
        if refused_by is not None:
            return Refusal(refused_by)
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
        self._lost_count += 1
        del self._connections[connection]
        self._admission.release(connection.ip, connection.listener.name)
        if not self._connections and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)

    # Internals.

    def _new_connection(self, listener: Listener) -> asyncio.BufferedProtocol:
        pause_ms = self._rates.of_listener(listener.name, self._clock.monotonic_ms())
        if pause_ms:
            # Not before this connection has been accepted.
            self._loop.call_soon(self._pause, listener.name, pause_ms)
        connection = Connection(self, listener)
        if listener.tls is None:
            return connection
        return TlsConnection(self, connection, listener.tls.context, listener.tls.established)

    def _pause(self, listener: str, time_ms: int) -> None:
        for one in self._accepting.get(listener, ()):
            one.pause(time_ms / 1_000)

    def _hold(self, connection: Connection, time_ms: int) -> bool:
        """Keep the connection until it is closed after `time_ms`. Returns whether there is room for
        it.
        """
        if len(self._held) >= HELD_MAX:
            return False
        self._loop.call_soon(connection.pause)
        self._held[connection] = self._loop.call_later(time_ms / 1_000, self._drop, connection)
        return True

    def _drop(self, connection: Connection) -> None:
        self._held.pop(connection).cancel()
        connection.drop()

    def _turn_away(self, connection: Connection, reason: CloseReason) -> None:
        self._arrivals.remove(connection)
        connection.abort_because(reason)

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

    def _on_memory_shortage(self) -> None:
        """Start the policy. Called during a read, when no connection may be closed."""
        if self._policy_handle is None:
            self._policy_handle = self._loop.call_soon(self._close_slow_uploads)

    def _close_slow_uploads(self) -> None:
        """Runs while a connection waits for memory, and once more afterwards."""
        self._policy_handle = None
        for upload in self._upload_policy.run(self._clock.monotonic_ms()):
            upload.evict()
        if self._upload_policy.is_active:
            self._policy_handle = self._loop.call_later(
                POLICY_INTERVAL_MS / 1000, self._close_slow_uploads
            )

    def _begin_check(self) -> None:
        self._serving_time.resume(self._clock.monotonic_ms())
        self._give_back_memory()
        self._check_some(iter(list(self._connections)))

    def _give_back_memory(self) -> None:
        """Return free memory to the system once there are no more large requests, or once a crowd
        of connections is gone.

        Buffers grow with what arrives, so a large frame leaves gaps of many sizes in the heap, and
        small objects created meanwhile keep the end of the heap in place. So do OpenSSL's buffers.
        """
        has_large_requests = self.memory.take_peak_bytes() >= LARGE_REQUESTS_BYTES
        is_free = self._had_large_requests and not has_large_requests
        self._had_large_requests = has_large_requests
        lost_count, self._lost_count = self._lost_count, 0
        self._lost_of_crowd += lost_count
        is_free |= self._lost_of_crowd >= CROWD and lost_count < STRAGGLERS
        if is_free:
            self._lost_of_crowd = 0
            self._loop.run_in_executor(None, give_back_free_memory)

    def _check_some(self, left: Iterator[Connection]) -> None:
        """Check the next slice of the connections, including ones that have closed since."""
        now_ms = self._serving_time.at(self._clock.monotonic_ms())
        is_more = self._turn_some_away(now_ms)
        piece = Slice(self._clock, looks_max=CHECKS_PER_SLICE)
        for connection in left:
            try:
                connection.check(now_ms)
            except Exception as error:  # noqa: BLE001 - the end of this connection, and of no other.
                connection.end_by(error)
            if piece.is_over():
                is_more = True
                break
        if is_more:
            self._check_handle = self._loop.call_soon(self._check_some, left)
        else:
            self._check_later()

    def _turn_some_away(self, now_ms: int) -> bool:
        """Close a few connections that have not authenticated in time; whether there may be more:
        a crowd that came at once is late at once.
        """
        timeout_ms = self.limits.kohort_authentication_timeout_ms
        overdue = self._arrivals.overdue(now_ms, timeout_ms)
        late = list(islice(overdue, DEPARTURES_PER_SLICE))
        for connection in late:
            self._turn_away(connection, CloseReason.AUTHENTICATION_TIMEOUT)
        return len(late) == DEPARTURES_PER_SLICE
