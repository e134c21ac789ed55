"""Limits of connections: the configs, throttling, activity of clients and closed peers."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from kohort.broker.core.security.rate import WINDOW_MS, WINDOWS
from kohort.broker.network.iteration import Turns
from kohort.broker.runtime.clock import Clock, SystemClock

UNLIMITED = 2_147_483_647


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """Kafka's names with dots as underscores; `kohort_` marks Kohort's own."""

    socket_request_max_bytes: int = 104_857_600
    """Largest frame. A larger size field closes the connection before anything is allocated."""
    queued_max_request_bytes: int = 256 * 1024 * 1024
    """Bytes of all requests being received or executed. Beyond it only one connection at a time
    continues to receive a large frame; small requests are not delayed. See `memory`."""
    socket_listen_backlog_size: int = 1024
    """The size of a listening socket's queue. With Kafka's 50, a client that meets a full queue
    loses a whole second (SYN retry)."""
    max_connections: int = UNLIMITED
    max_connections_of_listeners: Mapping[str, int] = field(default_factory=dict)
    """The same per listener, by name."""
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = UNLIMITED
    """New connections per second, over all listeners."""
    max_connection_creation_rates: Mapping[str, int] = field(default_factory=dict)
    """The same per listener, by name."""
    quota_window_num: int = WINDOWS
    quota_window_ms: int = WINDOW_MS
    connections_max_idle_ms: int = 600_000
    kohort_frame_timeout_ms: int = 30_000
    """An incomplete frame must be completed, or grow by `FRAME_PROGRESS_BYTES`, within this
    time."""
    kohort_authentication_timeout_ms: int = 10_000
    kohort_unauthenticated_connections_max: int = 1_000
    kohort_unsent_max_bytes: int = 512 * 1024 * 1024
    """Bytes of responses that slow clients have not received. Beyond it the connections that have
    been slow the longest are closed."""


FRAME_PROGRESS_BYTES = 1024 * 1024
"""A slow but legitimate upload achieves this within the frame timeout: 35 kB/s by default."""

REQUESTS_PER_TURN = 32
"""Requests of one connection that are executed before other connections get their turn."""

WRITE_HIGH_WATER_BYTES = 1024 * 1024
"""Unsent bytes above which no further request of a connection is executed."""

WRITE_LOW_WATER_BYTES = 256 * 1024

SMALL_BYTES = 16 * 1024
"""Reads and responses up to this size are batched with those of other connections."""

CLIENTS_MAX: Final = 10_000
"""The maximum number of clients tracked, the most recent ones."""

_STATES_AFTER_THE_PEER: Final = frozenset({7, 8})
"""TCP_CLOSE (the connection was reset) and TCP_CLOSE_WAIT (the peer has sent FIN)."""


class Activity:
    """Clients by client id and host; processes that share both count as one."""

    __slots__ = ("_at_ms", "_clock")

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._at_ms: dict[tuple[str, str], int] = {}
        """Ordered by time, the most recent client last."""

    def note(self, client_id: str, host: str) -> None:
        """Record activity since the last round, or a request of it that is still parked."""
        key = client_id, host
        self._at_ms.pop(key, None)
        if len(self._at_ms) >= CLIENTS_MAX:
            del self._at_ms[next(iter(self._at_ms))]
        self._at_ms[key] = self._clock.monotonic_ms()

    def since_ms(self, client_id: str, host: str) -> int | None:
        """Return for how long at least there was none; None if the client was never seen to be
        active.
        """
        at_ms = self._at_ms.get((client_id, host))
        return None if at_ms is None else max(self._clock.monotonic_ms() - at_ms, 0)


class Throttle:
    """Holds one client back, for one time after another."""

    __slots__ = ("_timer", "is_holding")

    def __init__(self) -> None:
        self.is_holding = False
        """The client is held back. Not to be set from outside."""
        self._timer: asyncio.TimerHandle | None = None

    def hold(self, turns: Turns, delay_ms: int, then: Callable[[], None]) -> None:
        """Hold the client back for `delay_ms` from now, then call `then`."""
        self.cancel()
        self.is_holding = True
        self._timer = turns.call_later(delay_ms, lambda: self._end(then))

    def cancel(self) -> None:
        """Hold it back no longer, and call nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self.is_holding = False

    def _end(self, then: Callable[[], None]) -> None:
        self._timer = None
        self.is_holding = False
        then()


def has_peer_left(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer has closed or reset the connection; False if unknown."""
    one = transport.get_extra_info("socket")
    if one is None or sys.platform != "linux":
        return False
    try:
        # The first byte of struct tcp_info is the connection's state.
        (state,) = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        return False
    return state in _STATES_AFTER_THE_PEER
