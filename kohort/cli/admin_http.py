"""Requests JSON from a broker's HTTP port."""

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final, TypeAlias

from kohort.admin.command_config import in_file_words
from kohort.cli.errors import (
    CommandError,
    NotFoundError,
    RefusedCommandError,
    StartingError,
    UnavailableError,
    UsageError,
)
from kohort.client.core.errors import TokenError
from kohort.client.net.security import SecurityConfig, tls_error

Json: TypeAlias = dict[str, Any]

HTTP_PORT: Final = 9308
HTTP: Final = f"http://localhost:{HTTP_PORT}"
"""Default URL of a broker's HTTP port."""
LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
STARTING_S: Final = 1.0
"""Timeout of the request for the progress of a starting broker, which responds at once."""
RESPONSE_BYTES_MAX: Final = 256 << 20
"""Maximum size of a response; a broker's largest responses have about 8 MB."""


def url_of(host: str, port: int, scheme: str = "http") -> str:
    """Return the base URL of an HTTP port; an IPv6 address gets brackets."""
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def starting_text(host: str) -> str | None:
    """Return the progress of a broker that is starting on this host; None if none is starting.

    Its HTTP port is open before its Kafka port. Only the default port is tried.
    """
    try:
        fetch(url_of(host, HTTP_PORT), "/groups", STARTING_S)
    except StartingError as error:
        return str(error)
    except CommandError:
        pass
    return None


def fetch(url: str, path: str, timeout_s: float, security: SecurityConfig | None = None) -> Json:
    """GET the JSON object at `path`, which is percent-encoded, below `url`, whose default scheme is
    http.

    `security` has the credentials, the same as for the broker's Kafka port.

    Raises:
        NotFoundError: status 404; the text is the broker's.
        StartingError: the broker is starting.
        UnavailableError: no response, or not a broker's.
        RefusedCommandError: not authenticated, or not authorized.
        UsageError: `url` is invalid, or would send the password without TLS.
    """
    base = (url if "://" in url else f"http://{url}").rstrip("/")
    if urllib.parse.urlsplit(base).scheme not in {"http", "https"}:
        raise UsageError(f"{url!r} is not an HTTP URL, such as {HTTP}")
    security = security or SecurityConfig()
    headers = {"Accept": "application/json", **_authorization(base, security, timeout_s)}
    request = urllib.request.Request(base + path, headers=headers)  # noqa: S310 - the scheme was checked.
    try:
        with _opener(security).open(request, timeout=timeout_s) as response:
            return _parse(base, response.read(RESPONSE_BYTES_MAX))
    except urllib.error.HTTPError as error:
        with error:
            data = _parse(base, error.read(64 * 1024))
        reason = str(data.get("error"))
        if "starting" in data:
            raise StartingError(f"{base}: {reason}") from error
        if error.code == http.client.NOT_FOUND:
            raise NotFoundError(reason) from error
        if error.code in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            raise RefusedCommandError(
                f"{base} answers {error.code}: {reason}; --command-config sets the user"
            ) from error
        raise UnavailableError(f"{base} answers {error.code}: {reason}") from error
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise UnavailableError(_advice(base, error)) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: brokers send none, and the password must not reach another server."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _opener(security: SecurityConfig) -> urllib.request.OpenerDirector:
    """Return an opener that connects directly, as Kafka clients do, and ignores the environment's
    proxy.
    """
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=security.tls_context if security.uses_tls else None),
        _NoRedirect,
    )


def _authorization(base: str, security: SecurityConfig, timeout_s: float) -> dict[str, str]:
    """Return the Authorization header. Raises UsageError; UnavailableError: no token."""
    user, password = security.sasl_plain_username, security.sasl_plain_password
    if not security.uses_sasl:
        return {}
    secret = "token" if security.uses_tokens else "password"
    parts = urllib.parse.urlsplit(base)
    is_local = parts.hostname in LOCAL_HOSTS
    if security.security_protocol == "SASL_SSL" and parts.scheme != "https" and not is_local:
        raise UsageError(f"the {secret} is for SASL_SSL only, but {base} has no TLS; use https://")
    if security.tokens is not None:
        try:
            token = security.tokens.wait(security.tokens.ask(timeout_s), timeout_s)
        except TokenError as error:
            raise UnavailableError(in_file_words(str(error))) from error
        return {"Authorization": f"Bearer {token.value}"}
    assert user is not None
    assert password is not None
    if ":" in user:
        raise UsageError(f"HTTP does not allow a colon in a user name, as in {user!r}")
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {credentials}"}


def _parse(base: str, text: bytes) -> Json:
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise UnavailableError(f"the response from {base} is not from a Kohort broker")
    return data


def _advice(base: str, error: Exception) -> str:
    reason = getattr(error, "reason", error)
    if isinstance(reason, ssl.SSLError) and (failure := tls_error(base, reason)) is not None:
        return in_file_words(str(failure))
    reason = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return (
        f"no response from {base} ({reason})\n"
        "This needs the HTTP port of a Kohort broker, kohort.metrics.port (9308, or the next free "
        "one, which the broker logs). Is the broker running, and the port reachable? --http sets "
        "its URL."
    )
