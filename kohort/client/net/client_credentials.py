"""Token providers: OAuth client credentials (RFC 6749, section 4.4) and tokens from a file, as in
Kafka's own clients (KIP-768).

Both block: as plain functions they run in a thread, and so work even while the event loop is
blocked.
"""

from __future__ import annotations

import base64
import ipaddress
import json
import ssl
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from kohort.client.net.oauth import TOKEN_BYTES_MAX, OAuthToken
from kohort.client.net.sasl import printable

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from urllib.error import HTTPError
    from urllib.request import OpenerDirector

ANSWER_BYTES_MAX: Final = 1 << 20
TIMEOUT_S: Final = 10.0
"""Time limit of each step of the HTTP exchange, and of reading the whole body. Waiting for a token
has its own limit."""


class TokenFetchError(Exception):
    """No token could be fetched; the message contains no secret."""


class ClientCredentials:
    """A provider that requests tokens from an issuer's endpoint with a client id and secret."""

    def __init__(
        self,
        url: str,
        client_id: str,
        client_secret: str,
        *,
        scope: str | None = None,
        extensions: Mapping[str, str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        url_encodes: bool = False,
    ) -> None:
        """Check the settings; sends no request yet.

        Args:
            url: `https://...`; `http://...` only if the host is a loopback address.
            scope: the requested scope, if the issuer needs one.
            extensions: sent to the broker with the token (KIP-342).
            ssl_context: by default one that trusts the system's CAs.
            url_encodes: URL-encode id and secret; RFC 6749 requires it, but few issuers support it.

        Raises:
            ValueError: the URL has none of these forms.
        """
        parts = urlsplit(url)
        if parts.scheme != "https" and not (
            parts.scheme == "http" and _is_loopback(parts.hostname)
        ):
            raise ValueError("it must be https://..., or http:// with a loopback address")
        if not parts.hostname:
            raise ValueError("it has no host")
        if parts.username is not None or parts.password is not None:
            raise ValueError("it must not contain a user or password")
        self.url = url
        self._is_local = parts.scheme == "http"
        if url_encodes:
            client_id, client_secret = quote_plus(client_id), quote_plus(client_secret)
        credentials = f"{client_id}:{client_secret}".encode()
        self._authorization = f"Basic {base64.b64encode(credentials).decode()}"
        form = {"grant_type": "client_credentials"}
        if scope:
            form["scope"] = scope
        self._body = urlencode(form).encode()
        self._extensions = dict(extensions or {})
        self._ssl_context = ssl_context

    def __repr__(self) -> str:
        return f"ClientCredentials({self.url!r})"

    def token(self) -> OAuthToken:
        """Request a token. Raises TokenFetchError."""
        # Imported only if a token is requested from an issuer.
        import http.client  # noqa: PLC0415
        from urllib.error import HTTPError  # noqa: PLC0415
        from urllib.request import Request  # noqa: PLC0415

        request = Request(  # noqa: S310 - https or loopback, as checked before.
            self.url,
            self._body,
            {
                "Authorization": self._authorization,
                "Content-Type": "application/x-www-form-urlencoded",
                "Accept": "application/json",
                "Cache-Control": "no-cache",
            },
            method="POST",
        )
        try:
            with self._opener().open(request, timeout=TIMEOUT_S) as answer:
                data = _read(answer)
        except HTTPError as error:
            with error:
                raise TokenFetchError(f"{self.url} answers {error.code}{_said(error)}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            text = printable(str(reason)) or type(reason).__name__
            raise TokenFetchError(f"{self.url} does not answer: {text}") from error
        return self._parsed(data, time.time())

    def _opener(self) -> OpenerDirector:
        from urllib.request import (  # noqa: PLC0415 - as above.
            HTTPRedirectHandler,
            HTTPSHandler,
            ProxyHandler,
            build_opener,
        )

        class NoRedirect(HTTPRedirectHandler):
            """Refuse redirects: the secret must go only to the configured address."""

            def redirect_request(self, *_: object, **__: object) -> None:
                return None

        handlers: list[Any] = [NoRedirect, HTTPSHandler(context=self._ssl_context)]
        if self._is_local:
            handlers.append(ProxyHandler({}))
        return build_opener(*handlers)

    def _parsed(self, data: bytes, now_s: float) -> OAuthToken:
        if len(data) > ANSWER_BYTES_MAX:
            raise TokenFetchError(
                f"{self.url} sent a response of more than {ANSWER_BYTES_MAX} bytes"
            )
        answer = _object(data)
        value = answer.get("access_token")
        if not isinstance(value, str) or not value:
            raise TokenFetchError(f"{self.url} sent a response without an access_token")
        lasts_s = answer.get("expires_in")
        if isinstance(lasts_s, str) and lasts_s.isascii() and lasts_s.isdecimal():
            lasts_s = int(lasts_s[:18])
        if isinstance(lasts_s, bool) or not isinstance(lasts_s, (int, float)):
            return OAuthToken(value, expiry_of(value), self._extensions)
        return OAuthToken(value, now_s + lasts_s, self._extensions)


class TokenFile:
    """A provider that reads the token from a file on each call; another process renews the file."""

    def __init__(self, path: str | Path, extensions: Mapping[str, str] | None = None) -> None:
        self.path = Path(path)
        self._extensions = dict(extensions or {})

    def __repr__(self) -> str:
        return f"TokenFile({str(self.path)!r})"

    def token(self) -> OAuthToken:
        """Read the token. Raises TokenFetchError."""
        try:
            with self.path.open("rb") as file:
                data = file.read(TOKEN_BYTES_MAX + 2)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise TokenFetchError(f"{str(self.path)!r} cannot be read: {reason}") from error
        try:
            value = data.decode("ascii").strip()
        except UnicodeDecodeError:
            raise TokenFetchError(
                f"{str(self.path)!r} does not contain a token: it is not ASCII"
            ) from None
        return OAuthToken(value, expiry_of(value), self._extensions)


def path_of(url: str) -> Path | None:
    """Return the path of a `file:///...` URL; None for other schemes.

    Raises:
        ValueError: it names a host, or no path.
    """
    parts = urlsplit(url)
    if parts.scheme != "file":
        return None
    if parts.netloc not in {"", "localhost"} or not parts.path.startswith("/"):
        raise ValueError("a file URL has the form file:///path")
    return Path(unquote(parts.path))


def expiry_of(value: str) -> float | None:
    """Return a JWT's expiry; None without one. Verifies nothing, unlike the broker."""
    parts = value.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    expires_s = claims.get("exp") if isinstance(claims, dict) else None
    if isinstance(expires_s, bool) or not isinstance(expires_s, (int, float)):
        return None
    return float(expires_s) if abs(expires_s) < 1e15 else None


def _is_loopback(host: str | None) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


def _object(data: bytes) -> dict[str, Any]:
    try:
        claims = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _read(answer: HTTPResponse) -> bytes:
    """Read a body, but stop once it exceeds ANSWER_BYTES_MAX. Raises TimeoutError."""
    deadline_s = time.monotonic() + TIMEOUT_S
    data = bytearray()
    while len(data) <= ANSWER_BYTES_MAX and (part := answer.read1(1 << 16)):
        data += part
        if time.monotonic() > deadline_s:
            raise TimeoutError("the response took too long")
    return bytes(data)


def _said(error: HTTPError) -> str:
    """Return the issuer's description of an error (RFC 6749, section 5.2)."""
    try:
        answer = _object(error.read(64 * 1024))
    except OSError:
        return ""
    texts = [answer.get("error"), answer.get("error_description")]
    return "".join(f": {printable(text)}" for text in texts if isinstance(text, str) and text)
