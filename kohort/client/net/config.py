"""Settings shared by all connections of a client, asynchronous and blocking ones."""

from __future__ import annotations

from typing import NamedTuple

from kohort.client.net.security import SecurityConfig


class ConnectionConfig(NamedTuple):
    client_id: str = "kohort"
    software_version: str = "0"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 5_000
    """Time for each address of a host, after which the next one is tried; never longer than the
    request timeout."""
    max_idle_ms: int = 540_000
    """A connection without requests for this long is closed; a negative time means never. Firewalls
    and NATs drop idle connections silently, and a request on such a connection would fail only
    after its whole timeout."""
    security: SecurityConfig = SecurityConfig()
