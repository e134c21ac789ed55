"""What all connections of a client have in common, those of the loop and those of threads."""

from __future__ import annotations

from typing import NamedTuple

from kohort.client.net.security import SecurityConfig


class ConnectionConfig(NamedTuple):
    """Settings of a connection: who we are, how patient and how secure."""

    client_id: str = "kohort"
    software_version: str = "0"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 5_000
    """For each address of a host, whose next one is tried then; and no longer than a request."""
    max_idle_ms: int = 540_000
    """After so long without a request a connection is closed; a negative time means never. Others
    on the way forget idle connections without telling anybody, and a request on such a one would
    wait for its whole time."""
    security: SecurityConfig = SecurityConfig()
