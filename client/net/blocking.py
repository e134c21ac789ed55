"""A connection for a thread of its own: one request at a time, with a limit for each wait.

The heartbeat thread has one. It shares nothing with the connections of the event loop, whose
progress it must not depend upon.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any

from client.net.cluster import Address
from client.net.connection import SOFTWARE_NAME, ConnectionConfig, DisconnectedError
from client.net.frame_codec import decode_response, encode_request
from client.net.frames import FRAME_BYTES_MAX
from client.net.versions import ApiVersionTable
from protocol.errors import DecodeError, ErrorCode
from protocol.messages.api_versions import ApiVersionsRequest


class BlockingConnection:
    """To one broker. Every call ends within its timeout; `close` may come from another thread."""

    def __init__(self, address: Address, config: ConnectionConfig, timeout_s: float) -> None:
        """Connect.

        Raises:
            DisconnectedError: the broker cannot be reached, or is none.
        """
        self.address = address
        self.versions = ApiVersionTable()
        self._config = config
        self._next_correlation_id = 0
        self._lock = threading.Lock()
        self._is_closed = False
        self._socket: socket.socket | None = None
        deadline_s = time.monotonic() + timeout_s
        try:
            plain = socket.create_connection(address, timeout=timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = plain
            if config.ssl_context is not None:
                self._socket = config.ssl_context.wrap_socket(plain, server_hostname=address.host)
            self._learn_versions(deadline_s)
        except (OSError, DecodeError, DisconnectedError) as error:
            self.close()
            raise DisconnectedError(f"{address.host}:{address.port}: {error}") from error

    def call(self, request: object, timeout_s: float, *, version: int | None = None) -> Any:  # noqa: ANN401
        """Send a request and return its answer. After an error the connection is closed.

        Raises:
            DisconnectedError: there is no answer, or none in time.
        """
        try:
            return self._call(request, time.monotonic() + timeout_s, version)
        except (OSError, DecodeError) as error:
            self.close()
            text = str(error) or "no answer in time"
            raise DisconnectedError(f"{self.address.host}:{self.address.port}: {text}") from error

    def close(self) -> None:
        """End it; a call under way in another thread fails."""
        with self._lock:
            found, self._socket = self._socket, None
            self._is_closed = True
        if found is not None:
            # Closing alone would not wake up whoever is reading.
            with contextlib.suppress(OSError):
                found.shutdown(socket.SHUT_RDWR)
            found.close()

    def _learn_versions(self, deadline_s: float) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME,
            client_software_version=self._config.software_version,
        )
        answer = self._call(request, deadline_s, 3)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self._call(request, deadline_s, 0)
        self.versions = ApiVersionTable(
            {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        )

    def _call(self, request: object, deadline_s: float, version: int | None) -> Any:  # noqa: ANN401
        if version is None:
            version = self.versions.best(type(request))
        self._next_correlation_id = self._next_correlation_id + 1 & 0x7FFF_FFFF
        parts, expected = encode_request(
            request, version, self._next_correlation_id, self._config.client_id
        )
        found = self._socket
        if found is None:
            raise OSError("the connection is closed")
        found.settimeout(_left_s(deadline_s))
        found.sendall(b"".join(parts))
        size = int.from_bytes(_receive(found, 4, deadline_s), "big")
        if size > FRAME_BYTES_MAX:
            raise DecodeError(f"a frame of {size} bytes")
        return decode_response(_receive(found, size, deadline_s), expected)


def _receive(connection: socket.socket, count: int, deadline_s: float) -> bytes:
    parts: list[bytes] = []
    while count:
        connection.settimeout(_left_s(deadline_s))
        part = connection.recv(min(count, 1 << 16))
        if not part:
            raise OSError("the broker has closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _left_s(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no answer in time")
    return left_s
