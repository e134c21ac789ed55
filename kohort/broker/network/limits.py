"""What a peer may ask of the network edge: the broker's configs of these names."""

from collections.abc import Mapping
from dataclasses import dataclass, field

UNLIMITED = 2_147_483_647


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """Kafka's names with dots as underscores; `kohort_` marks ours."""

    socket_request_max_bytes: int = 104_857_600
    """Largest frame. A larger size field closes the connection before anything is allocated."""
    queued_max_request_bytes: int = 256 * 1024 * 1024
    """Bytes of all requests that are being received or waited for. Beyond it only one connection at
    a time goes on receiving a large frame; small requests are not held up. See `memory`."""
    socket_listen_backlog_size: int = 1024
    """Kafka's 50 costs a client that meets a full queue a whole second (SYN retry)."""
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    connections_max_idle_ms: int = 600_000
    kohort_frame_timeout_ms: int = 30_000
    """An unfinished frame must end, or grow by `FRAME_PROGRESS_BYTES`, within this time."""
    kohort_authentication_timeout_ms: int = 10_000
    kohort_unauthenticated_connections_max: int = 1_000
    kohort_unsent_max_bytes: int = 512 * 1024 * 1024
    """Bytes of responses that slow readers have not taken. Beyond it those that have been slow for
    longest are closed."""


FRAME_PROGRESS_BYTES = 1024 * 1024
"""What a slow but honest upload manages in the frame timeout: 35 kB/s at the default."""

REQUESTS_PER_TURN = 32
"""Requests of one connection that are executed before the others get their turn."""

WRITE_HIGH_WATER_BYTES = 1024 * 1024
"""Unsent bytes at which no further request of a connection is executed."""

WRITE_LOW_WATER_BYTES = 256 * 1024

SMALL_BYTES = 16 * 1024
"""Reads and answers up to this size wait for those of other connections in the same turn."""
