"""Accepts connections, owns their shared resources, and closes them in an orderly way.

Guarantees: `close` answers the current requests, sends the written responses and returns within its
grace period, whatever clients do; the periodic checks return to the event loop after each
CHECKS_PER_SLICE connections.
"""

import asyncio
import logging
import socket
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING

from kohort.broker.core.security.quotas import CONNECTION
from kohort.broker.core.security.session import Session
from kohort.broker.network.connection.connection import Connection
from kohort.broker.network.connection.files import FileReads
from kohort.broker.network.connection.frames import RECEIVE_BUFFER_BYTES
from kohort.broker.network.connection.host import Refusal
from kohort.broker.network.connection.limits import UNLIMITED, Activity, NetworkLimits
from kohort.broker.network.iteration import (
    DISCONNECTS_PER_SLICE,
    DisconnectQueue,
    IterationScheduler,
)
from kohort.broker.network.memory import (
    POLICY_INTERVAL_MS,
    RequestMemoryBudget,
    SlowUploadPolicy,
    UnsentBytes,
)
from kohort.broker.network.metrics import NetworkMetrics
from kohort.broker.network.server.admission import (
    Admission,
    ConnectionRates,
    UnauthenticatedConnections,
)
from kohort.broker.network.server.listening import Acceptor
from kohort.broker.network.service import ConnectionInfo, Listener, Service
from kohort.broker.network.timeouts import CloseReason, ServingTime
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.memory.reclaimer import return_free_memory
from kohort.broker.runtime.peer_log import PeerLog
from kohort.broker.runtime.slices import Slice

# Imported at the first TLS connection, because the import takes 1 ms.
if TYPE_CHECKING:
    from kohort.broker.network.tls.handshakes import Handshakes
    from kohort.broker.runtime.low_priority_threads import Threads

logger = logging.getLogger(__name__)

CHECK_INTERVAL_MS_MAX = 1_000
CHECKS_PER_TIMEOUT = 10
CHECKS_PER_SLICE = 200
"""Number of connections that are checked before control returns to the event loop: 0.3 ms."""

DELAYED_MAX = 1_000
"""Maximum number of refused connections whose close is delayed, by a second at most, because their
address exceeds its rate. Further ones are closed immediately."""

LARGE_REQUESTS_BYTES = 4 * 1024 * 1024
"""Free memory is returned to the system after requests have used this much memory at once."""

BURST = 100
"""Number of closed connections after which free memory is returned to the system; with TLS, each
used about 50 KiB."""
BURST_END_MAX = 10
"""A burst of disconnects is over when fewer connections than this closed since the last check."""


class NetworkServer:
    """All listeners and connections of one broker. Must be created in a running event loop."""

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
        handshake_threads: "Threads | None" = None,
    ) -> None:
        """Create a server without listeners.

        Args:
            limit_of_ip: returns the connections per second that an address may open.
            senders_max: maximum number of connections with a second descriptor, for sendfile.
            handshake_threads: compute TLS handshakes; by default two threads of a lower priority.
        """
        self.service = service
        self.limits = limits
        self.metrics = metrics
        self.log = log
        self.receive_buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        """The receive buffer of all connections; empty between two reads."""
        self.memory = RequestMemoryBudget(limits.queued_max_request_bytes, self._on_memory_shortage)
        self.unsent = UnsentBytes(limits.kohort_unsent_max_bytes)
        self.activity = activity or Activity(clock)
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.scheduler = IterationScheduler(self._loop, clock)
        self.disconnects = DisconnectQueue(clock)
        self.reads = FileReads(self._loop, senders_max)
        self.sends_files = False
        """Whether sendfile(2) is available (Linux); set by `listen`."""
        self.ciphertext_buffer = memoryview(b"")
        """Receive buffer for the ciphertext of all TLS connections; created when needed."""
        self._handshake_threads = handshake_threads
        self._handshakes: Handshakes | None = None
        self._admission = Admission(limits)
        self._unauthenticated: UnauthenticatedConnections[Connection] = UnauthenticatedConnections()
        self._connections: dict[Connection, None] = {}
        self._rates = ConnectionRates(limits, limit_of_ip)
        self._delayed: dict[Connection, asyncio.TimerHandle] = {}
        """Refused connections that are closed after a delay."""
        self._acceptors: dict[str, list[Acceptor]] = {}
        """Listening sockets by listener."""
        self._check_handle: asyncio.Handle | None = None
        self._serving_time = ServingTime()
        self._upload_policy = SlowUploadPolicy(self.memory)
        self._policy_handle: asyncio.Handle | None = None
        self._had_large_requests = False
        self._closed_count = 0
        """Connections closed since the last check."""
        self._burst_count = 0
        """Connections closed between the last return of memory and the last check."""
        self._is_stopping = False
        self._all_gone: asyncio.Future[None] | None = None

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def connections(self) -> Iterator[ConnectionInfo]:
        """Yield the open connections; not to be used across awaits."""
        return (connection.info for connection in self._connections)

    def set_limits(self, limits: NetworkLimits) -> None:
        """Apply new limits to future connections; no connection is closed."""
        self.limits = self._admission.limits = self._rates.limits = limits

    async def listen(self, sockets: Iterable[socket.socket], listener: Listener) -> None:
        """Accept connections from bound sockets, which the server then owns."""
        self.sends_files = sys.platform == "linux"
        if listener.tls is not None and not self.ciphertext_buffer:
            from kohort.broker.network.tls.connection import CIPHERTEXT_BUFFER_BYTES  # noqa: PLC0415

            self.ciphertext_buffer = memoryview(bytearray(CIPHERTEXT_BUFFER_BYTES))
        for bound in sockets:
            acceptor = Acceptor(
                bound,
                partial(self._new_connection, listener),
                backlog=self.limits.socket_listen_backlog_size,
            )
            self._acceptors.setdefault(listener.name, []).append(acceptor)
            await acceptor.open()
        if self._check_handle is None:
            self._check_later()

    def stop_accepting(self) -> None:
        """Refuse new connections; open ones are still served."""
        self._is_stopping = True
        for acceptor in chain(*self._acceptors.values()):
            acceptor.close()
        self._acceptors = {}
        for connection in list(self._delayed):
            self._drop(connection)

    def stop_serving(self) -> None:
        """Execute no more requests; close connections without a current request."""
        self.stop_accepting()
        for connection in list(self._connections):
            connection.stop()

    async def close(self, grace_ms: int) -> None:
        """Close all connections, giving current requests and their responses `grace_ms`."""
        self.stop_serving()
        if self._connections:
            await self._wait_all_gone(grace_ms)
        if self._connections:
            logger.warning(
                "Closing %d connections after the grace period",
                len(self._connections),
            )
            for connection in list(self._connections):
                connection.abort(CloseReason.SHUTDOWN)
            await self._wait_all_gone(grace_ms)
        self._close_handshakes()
        if self._check_handle is not None:
            self._check_handle.cancel()
        if self._policy_handle is not None:
            self._policy_handle.cancel()

    def abort(self) -> None:
        """Stop accepting connections, and close all connections immediately, as a crash would."""
        self.stop_accepting()
        for connection in list(self._connections):
            connection.abort(CloseReason.SHUTDOWN)
        self._close_handshakes()

    def disconnect(self, is_matching: Callable[[Session], bool]) -> None:
        """Close the connections with matching sessions, and cancel their parked requests."""
        for connection in list(self._connections):
            if is_matching(connection.info.session):
                connection.abort(CloseReason.AUTHENTICATION)

    # Called by connections.

    @property
    def handshakes(self) -> "Handshakes":
        if self._handshakes is None:
            from kohort.broker.network.tls.handshakes import THREADS, Handshakes  # noqa: PLC0415
            from kohort.broker.runtime.low_priority_threads import (  # noqa: PLC0415
                LowPriorityThreads,
            )

            threads = self._handshake_threads or LowPriorityThreads("tls", THREADS)
            self._handshakes = Handshakes(threads)
        return self._handshakes

    def connection_made(self, connection: Connection) -> Refusal | None:
        if self._is_stopping:
            return Refusal("shutdown")
        throttle_ms = self._rates.of_ip(connection.ip, self._clock.monotonic_ms())
        if throttle_ms:
            return Refusal(CONNECTION, is_delayed=self._delay_close(connection, throttle_ms))
        refused_by = self._admission.admit(connection.ip, connection.listener.name)
        if refused_by is not None:
            return Refusal(refused_by)
        self._connections[connection] = None
        if connection.listener.requires_authentication:
            now_ms = self._serving_time.at(self._clock.monotonic_ms())
            count_max = self.limits.kohort_unauthenticated_connections_max
            oldest = self._unauthenticated.add(connection, now_ms, count_max)
            if oldest is not None:
                self._abort_unauthenticated(oldest, CloseReason.UNAUTHENTICATED_LIMIT)
        return None

    def on_authenticated(self, connection: Connection) -> None:
        self._unauthenticated.remove(connection)

    def connection_lost(self, connection: Connection) -> None:
        self._unauthenticated.remove(connection)
        self._closed_count += 1
        del self._connections[connection]
        self._admission.release(connection.ip, connection.listener.name)
        if not self._connections and self._all_gone is not None and not self._all_gone.done():
            self._all_gone.set_result(None)

    # Internals.

    def _close_handshakes(self) -> None:
        if self._handshakes is not None:
            self._handshakes.close()

    def _new_connection(self, listener: Listener) -> asyncio.BufferedProtocol:
        pause_ms = self._rates.of_listener(listener.name, self._clock.monotonic_ms())
        if pause_ms:
            # Called later: `_pause` closes the listening socket, from which asyncio is accepting
            # this connection.
            self._loop.call_soon(self._pause, listener.name, pause_ms)
        connection = Connection(self, listener)
        if listener.tls is None:
            return connection
        from kohort.broker.network.tls.connection import TlsConnection  # noqa: PLC0415 - 1 ms.

        return TlsConnection(self, connection, listener.tls.context, listener.tls.established)

    def _pause(self, listener: str, time_ms: int) -> None:
        for acceptor in self._acceptors.get(listener, ()):
            acceptor.pause(time_ms / 1_000)

    def _delay_close(self, connection: Connection, time_ms: int) -> bool:
        """Close a refused connection after `time_ms`; return False if too many are waiting."""
        if len(self._delayed) >= DELAYED_MAX:
            return False
        self._loop.call_soon(connection.pause)
        self._delayed[connection] = self._loop.call_later(time_ms / 1_000, self._drop, connection)
        return True

    def _drop(self, connection: Connection) -> None:
        self._delayed.pop(connection).cancel()
        connection.drop()

    def _abort_unauthenticated(self, connection: Connection, reason: CloseReason) -> None:
        self._unauthenticated.remove(connection)
        connection.abort(reason)

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
        """Have the upload policy run soon. Not at once: this is called during a read, when no
        connection may be closed.
        """
        if self._policy_handle is None:
            self._policy_handle = self._loop.call_soon(self._close_slow_uploads)

    def _close_slow_uploads(self) -> None:
        """Close the connections that the policy selects because their requests arrive too slowly;
        runs periodically while a request waits for memory, and once more afterwards.
        """
        self._policy_handle = None
        for upload in self._upload_policy.run(self._clock.monotonic_ms()):
            upload.evict()
        if self._upload_policy.is_active:
            self._policy_handle = self._loop.call_later(
                POLICY_INTERVAL_MS / 1000, self._close_slow_uploads
            )

    def _begin_check(self) -> None:
        self._serving_time.resume(self._clock.monotonic_ms())
        self._trim_memory()
        self._check_some(iter(list(self._connections)))

    def _trim_memory(self) -> None:
        """Return free memory to the system after large requests, or a burst of disconnects.

        The allocator does not return it by itself: the growing buffer of a large frame leaves gaps
        in the heap, and small objects that were created meanwhile keep the heap's end in use.
        OpenSSL's buffers do the same.
        """
        has_large_requests = self.memory.take_peak_bytes() >= LARGE_REQUESTS_BYTES
        should_trim = self._had_large_requests and not has_large_requests
        self._had_large_requests = has_large_requests
        closed_count, self._closed_count = self._closed_count, 0
        self._burst_count += closed_count
        should_trim |= self._burst_count >= BURST and closed_count < BURST_END_MAX
        if should_trim:
            self._burst_count = 0
            self._loop.run_in_executor(None, return_free_memory)

    def _check_some(self, remaining: Iterator[Connection]) -> None:
        """Check the next slice of the connections, some of which may have closed in the
        meantime.
        """
        now_ms = self._serving_time.at(self._clock.monotonic_ms())
        has_more = self._close_overdue(now_ms)
        time_slice = Slice(self._clock, checks_max=CHECKS_PER_SLICE)
        for connection in remaining:
            try:
                connection.check(now_ms)
            except Exception as error:  # noqa: BLE001 - closes only this connection.
                connection.fail(error)
            if time_slice.is_over():
                has_more = True
                break
        if has_more:
            self._check_handle = self._loop.call_soon(self._check_some, remaining)
        else:
            self._check_later()

    def _close_overdue(self, now_ms: int) -> bool:
        """Close a few connections that were not authenticated in time. Return True if more may be
        overdue: connections that were opened together expire together.
        """
        timeout_ms = self.limits.kohort_authentication_timeout_ms
        overdue = self._unauthenticated.overdue(now_ms, timeout_ms)
        batch = list(islice(overdue, DISCONNECTS_PER_SLICE))
        for connection in batch:
            self._abort_unauthenticated(connection, CloseReason.AUTHENTICATION_TIMEOUT)
        return len(batch) == DISCONNECTS_PER_SLICE
