"""Sessions of members that are killed."""

from typing import Final

SESSION_TIMEOUT_MS: Final = 5_000
"""Many heartbeats long, and still something to wait for."""

SETTINGS: Final = {"group.min.session.timeout.ms": "1000"}
"""Of a broker that accepts such sessions."""
