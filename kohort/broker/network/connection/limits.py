"""Limits of connections, throttling, clients' last activity, and detection of closed peers."""

import asyncio
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from kohort.broker.core.security.account import WINDOW_MS, WINDOWS
from kohort.broker.network.iteration import IterationScheduler
from kohort.broker.runtime.clock import Clock, SystemClock

UNLIMITED = 2_147_483_647

FRAME_PROGRESS_BYTES = 1024 * 1024
"""Bytes that a slow but legitimate upload sends within the frame timeout: 35 kB/s by default."""

REQUESTS_PER_ITERATION = 32
"""Maximum requests that one connection executes before other connections execute theirs."""

WRITE_HIGH_WATER_BYTES = 1024 * 1024
"""Unsent bytes above which no further request of a connection is executed."""

WRITE_LOW_WATER_BYTES = 256 * 1024

SMALL_BYTES = 16 * 1024
"""Reads and responses up to this size are batched with those of other connections."""

CLIENTS_MAX: Final = 10_000
"""The maximum number of clients whose activity is tracked."""

_CLOSED_BY_PEER: Final = frozenset({7, 8})
"""TCP_CLOSE (the connection was reset) and TCP_CLOSE_WAIT (the peer has sent FIN)."""


class NetworkLimits(NamedTuple):
    """Limits of connections, named like Kafka's configs, with underscores instead of dots;
    `kohort_` marks Kohort's own.
    """

    socket_request_max_bytes: int = 104_857_600
    """Largest frame. A larger size field closes the connection before anything is allocated."""
    queued_max_request_bytes: int = 256 * 1024 * 1024
    """Bytes of all requests being received or executed. Beyond this limit only one connection at a
    time continues to receive a large frame; small requests are not delayed. See `memory`."""
    socket_listen_backlog_size: int = 1024
    """The size of a listening socket's queue. With Kafka's 50, a client that finds a full queue
    loses a whole second (SYN retry)."""
    max_connections: int = UNLIMITED
    max_connections_of_listeners: Mapping[str, int] = {}
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = {}
    max_connection_creation_rate: int = UNLIMITED
    """New connections per second, over all listeners."""
    max_connection_creation_rates: Mapping[str, int] = {}
    """Limit per listener, by name."""
    quota_window_num: int = WINDOWS
    quota_window_ms: int = WINDOW_MS
    connections_max_idle_ms: int = 600_000
    kohort_frame_timeout_ms: int = 30_000
    """An incomplete frame must be completed, or grow by `FRAME_PROGRESS_BYTES`, within this
    time."""
    kohort_authentication_timeout_ms: int = 10_000
    kohort_unauthenticated_connections_max: int = 1_000
    kohort_unsent_max_bytes: int = 512 * 1024 * 1024
    """Bytes of responses that slow clients have not received. Beyond this limit the connections
    that have been slow the longest are closed."""


class Activity:
    """The time of each client's last activity, by client id and host.

    Processes with the same client id and host count as one client. Not every request is activity,
    because a client may keep its connections alive and do no work: the service sets
    `ConnectionInfo.active_as` at requests that count. The periodic check of all connections, about
    every second, updates the times.
    """

    __slots__ = ("_at_ms", "_clock")

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._at_ms: dict[tuple[str, str], int] = {}
        """Time of each client's last activity (monotonic), in ascending order."""

    def record(self, client_id: str, host: str) -> None:
        """Record that the client was active since the last check, or that its request is parked."""
        key = client_id, host
        self._at_ms.pop(key, None)
        if len(self._at_ms) >= CLIENTS_MAX:
            del self._at_ms[next(iter(self._at_ms))]
        self._at_ms[key] = self._clock.monotonic_ms()

    def since_ms(self, client_id: str, host: str) -> int | None:
        """Return the time since the last activity, accurate to the interval of the periodic check;
        None for an unknown client.
        """
        at_ms = self._at_ms.get((client_id, host))
        return None if at_ms is None else max(self._clock.monotonic_ms() - at_ms, 0)


class Throttle:
    """Mutes one connection for the throttle time in its last response (KIP-219).

    The response is sent immediately, and the client is expected to wait. Until the time is over,
    the client's connection is not read, and its requests are not executed.
    """

    __slots__ = ("_timer", "is_active")

    def __init__(self) -> None:
        self.is_active = False
        """Whether the connection is muted; set only by this class."""
        self._timer: asyncio.TimerHandle | None = None

    def start(
        self, scheduler: IterationScheduler, delay_ms: int, callback: Callable[[], None]
    ) -> None:
        """Mute the connection for `delay_ms` from now, then call `callback`."""
        self.cancel()
        self.is_active = True
        self._timer = scheduler.call_later(delay_ms, lambda: self._end(callback))

    def cancel(self) -> None:
        """Unmute the connection without calling the callback."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self.is_active = False

    def _end(self, callback: Callable[[], None]) -> None:
        self._timer = None
        self.is_active = False
        callback()


def is_closed_by_peer(transport: asyncio.BaseTransport) -> bool:
    """Ask the kernel whether the peer has closed or reset the connection; False if unknown.

    For connections that are not being read, on which the end of the stream goes unnoticed: a client
    may send further requests while a request is parked for minutes, and disconnect.
    """
    peer_socket = transport.get_extra_info("socket")
    if peer_socket is None or sys.platform != "linux":
        return False
    try:
        # The first byte of struct tcp_info is the connection's state.
        (state,) = peer_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        return False
    return state in _CLOSED_BY_PEER
