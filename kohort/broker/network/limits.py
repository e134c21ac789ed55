"""Limits of the network layer: the broker configs of the same names."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.broker.core.security.rate import WINDOW_MS, WINDOWS

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
