"""The settings of the broker, as the memberships of share groups use them."""

from typing import NamedTuple


class ShareSettings(NamedTuple):
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    """How often members are to send heartbeats."""
    assignment_interval_ms: int = 1_000
    """The least time between two target assignments."""
    max_size: int = 200
    """Maximum number of members."""
