"""Session timeouts for tests that kill members."""

from typing import Final

SESSION_TIMEOUT_MS: Final = 5_000
"""Several heartbeat intervals, and short enough to wait for."""

SETTINGS: Final = {"group.min.session.timeout.ms": "1000"}
"""Settings of a broker that accepts this timeout."""
