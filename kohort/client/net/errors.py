"""Errors of connections."""

from __future__ import annotations

import ssl

from kohort.client.core.errors import ConsumerError
from kohort.client.net.security import TLS_HINT, SecurityConfig, tls_error
from kohort.protocol.errors import ErrorCode


class DisconnectedError(ConsumerError):
    """The connection could not be made, or was lost before the response came."""

    def __init__(self, message: str) -> None:
        super().__init__(message, ErrorCode.NETWORK_EXCEPTION)


def connect_error(address: str, error: OSError, security: SecurityConfig) -> ConsumerError:
    """Return the error for a connection that could not be made, with a hint at its likely cause."""
    failure = tls_error(address, error) if isinstance(error, ssl.SSLError) else None
    if failure is not None:
        return failure
    is_shut = isinstance(error, (ssl.SSLError, ConnectionResetError, ConnectionAbortedError))
    hint = TLS_HINT if security.uses_tls and is_shut else ""
    # The text of the error without "[Errno ...]".
    reason = error.strerror or error
    return DisconnectedError(f"{address} cannot be reached: {reason}{hint}")
