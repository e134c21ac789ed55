"""Fetches the keys of a token issuer. Blocks; meant for a thread.

Time and memory are bounded, whatever the issuer does. The time limit applies to the whole fetch,
from the name lookup to the last byte, because a limit per read would not stop an issuer that sends
a byte now and then. The system's resolver cannot be cancelled; it continues in its own thread.
"""

import contextlib
import socket
import threading
import time
from typing import Any, Final, Self, TypeAlias
from urllib.parse import unquote, urlsplit

KEYS_BYTES_MAX: Final = 1 << 20
FETCH_TIMEOUT_S: Final = 5.0

_TOO_SLOW: Final = "its answer is not complete in time"

_LOOK_UPS_MAX: Final = 4
_look_ups: Final = threading.BoundedSemaphore(_LOOK_UPS_MAX)
"""Held by each lookup until the resolver returns, to bound the number of hanging ones."""

_Addresses: TypeAlias = list[tuple[int, int, int, str, Any]]
"""Result of `socket.getaddrinfo`."""


def fetch_keys(url: str, timeout_s: float = FETCH_TIMEOUT_S) -> bytes:
    """Return the JSON at a URL (file, http or https). Raises OSError or ValueError."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        with open(unquote(parts.path), "rb") as file:  # noqa: PTH123 - a text, as in urllib.
            data = file.read(KEYS_BYTES_MAX + 1)
    else:
        data = _fetch_by_http(url, timeout_s)
    if len(data) > KEYS_BYTES_MAX:
        raise ValueError("it is too long for a key set")
    return data


def _fetch_by_http(url: str, timeout_s: float) -> bytes:
    # Imported only if keys are not in a file, so that other starts do not pay for it.
    from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection  # noqa: PLC0415
    from urllib.error import HTTPError  # noqa: PLC0415
    from urllib.request import (  # noqa: PLC0415
        HTTPHandler,
        HTTPRedirectHandler,
        HTTPSHandler,
        Request,
        build_opener,
    )

    limit = _TimeLimit(timeout_s)

    class Limited(HTTPConnection):
        def connect(self) -> None:
            self._create_connection = limit.connect
            super().connect()

    class LimitedTls(HTTPSConnection, Limited):
        """Like `Limited`, with TLS: its handshake follows `Limited.connect`."""

    class Http(HTTPHandler):
        def http_open(self, req: Request) -> HTTPResponse:
            return self.do_open(Limited, req)

    class Https(HTTPSHandler):
        def https_open(self, req: Request) -> HTTPResponse:
            return self.do_open(LimitedTls, req)

    class NoRedirect(HTTPRedirectHandler):
        """Rejects redirects: keys are fetched only from the configured URL."""

        def redirect_request(self, *_: object, **__: object) -> None:
            return None

    try:
        with (
            limit,
            build_opener(Http, Https, NoRedirect).open(url, timeout=timeout_s) as answer,
        ):
            data: bytes = answer.read(KEYS_BYTES_MAX + 1)
    except HTTPException as error:
        raise ValueError(limit.reason or f"not HTTP ({type(error).__name__}: {error})") from None
    except OSError as error:
        if isinstance(error, HTTPError):
            error.close()
        if limit.reason is None:
            raise
        raise TimeoutError(limit.reason) from None
    # A body without a length ends with the connection.
    if limit.reason is not None:
        raise TimeoutError(limit.reason)
    return data


def _addresses(host: str, port: int, ends_s: float) -> _Addresses:
    """Resolve a name, until `ends_s` at the latest. Raises OSError."""
    found: _Addresses = []
    failures: list[OSError | UnicodeError] = []
    is_done = threading.Event()

    def look_up() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            failures.append(error)
        finally:
            _look_ups.release()
            is_done.set()

    if not _look_ups.acquire(timeout=max(ends_s - time.monotonic(), 0)):
        raise TimeoutError(f"{host} was not looked up: earlier lookups are still pending")
    threading.Thread(target=look_up, name="look-up", daemon=True).start()
    if not is_done.wait(max(ends_s - time.monotonic(), 0)):
        raise TimeoutError(f"{host} was not resolved in time")
    if failures:
        raise failures[0]
    return found


class _TimeLimit:
    """A time limit for a whole connection, starting now.

    It shuts the socket down, which ends a read, a write or a handshake in another thread, whatever
    buffers are in between.
    """

    def __init__(self, timeout_s: float) -> None:
        self.reason: str | None = None
        """Why the connection was shut down; None unless it was."""
        self._ends_s = time.monotonic() + timeout_s
        self._too_slow = _TOO_SLOW
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(timeout_s, self._shut_down)
        self._timer.daemon = True
        self._timer.start()

    def connect(
        self, address: tuple[str, int], timeout: object = None, source: object = None
    ) -> socket.socket:
        """Connect as `socket.create_connection`, within the limit for all addresses together."""
        del timeout, source
        host, port = address
        error: OSError = TimeoutError(_TOO_SLOW)
        self._too_slow = f"{host} was not resolved in time"
        found = _addresses(host, port, self._ends_s)
        self._too_slow = _TOO_SLOW
        for family, kind, protocol, _, where in found:
            left_s = self._ends_s - time.monotonic()
            if left_s <= 0:
                break
            made = socket.socket(family, kind, protocol)
            try:
                made.settimeout(left_s)
                made.connect(where)
            except OSError as failed:
                made.close()
                error = failed
                continue
            self._watch(made)
            return made
        raise error

    def _watch(self, connected: socket.socket) -> None:
        # A duplicate, because the connection's descriptor moves into a TLS socket.
        with self._lock:
            if self.reason is None:
                self._socket = connected.dup()
                return
        connected.close()
        raise TimeoutError(self.reason)

    def _shut_down(self) -> None:
        with self._lock:
            self.reason = self._too_slow
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._timer.cancel()
        with self._lock:
            if self._socket is not None:
                self._socket.close()
                self._socket = None
