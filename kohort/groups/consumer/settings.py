"""The settings of the broker, as consumer groups use them."""

from collections.abc import Sequence
from typing import NamedTuple


class ConsumerSettings(NamedTuple):
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    """How often members are to send heartbeats."""
    assignment_interval_ms: int = 1_000
    """The least time between two target assignments."""
    max_size: int = 2**31 - 1
    """Maximum number of members."""
    assignors: Sequence[str] = ("uniform", "range")
    """Names of the assignors; the first is used unless members request another."""
    regex_refresh_interval_ms: int = 600_000
    """How often regular expressions are resolved if no topic was created."""
    allows_upgrade: bool = True
    """Whether a classic group with members becomes a consumer group when a consumer joins."""
    allows_downgrade: bool = True
    """Whether it becomes a classic group when its last consumer leaves."""
    allows_classic_members: bool = True
    """Whether classic members may join."""
