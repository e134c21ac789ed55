"""Asks the JSON pages of a broker's HTTP port."""

import base64
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final, TypeAlias

from kohort.cli.command_config import in_file_words
from kohort.cli.errors import (
    NotFoundError,
    RefusedCommandError,
    UnavailableError,
    UsageError,
)
from kohort.client.core.errors import TokenError
from kohort.client.net.security import SecurityConfig

Json: TypeAlias = dict[str, Any]

_HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})

ANSWER_BYTES_MAX: Final = 256 << 20
"""The broker's own answers end at about 8 MB."""


def fetch(url: str, path: str, timeout_s: float, security: SecurityConfig | None = None) -> Json:
    """The JSON object at `path`, which is percent-encoded, below `url`; `security` says how to get
    in, as for the broker's other ports.

    Raises:
        NotFoundError: the broker says that there is none; the text is the broker's.
        UnavailableError: no answer, or none that can be understood.
        RefusedCommandError: the broker does not let this user see it.
        UsageError: `url` is not one, or the password is not for it.
    """
    base = url.rstrip("/")
    if urllib.parse.urlsplit(base).scheme not in {"http", "https"}:
        raise UsageError(f"{url!r} is no URL; http://localhost:9308 is one")
    security = security or SecurityConfig()
    headers = {"Accept": "application/json", **_authorization(base, security, timeout_s)}
    request = urllib.request.Request(base + path, headers=headers)  # noqa: S310 - http, as was just looked at.
    try:
        with _opener(security).open(request, timeout=timeout_s) as answer:
            return _parse(base, answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        with error:
            told = _told(base, error)
        if error.code == http.client.NOT_FOUND:
            raise NotFoundError(told) from error
        if error.code in {http.client.UNAUTHORIZED, http.client.FORBIDDEN}:
            raise RefusedCommandError(
                f"{base} answers {error.code}: {told}; --command-config says who asks"
            ) from error
        raise UnavailableError(f"{base} answers {error.code}: {told}") from error
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise UnavailableError(_advice(base, error)) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: no broker sends one, and a password is for the broker alone."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _opener(security: SecurityConfig) -> urllib.request.OpenerDirector:
    """Asks the broker itself, as the Kafka client does, whatever proxy the shell has."""
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=security.tls_context if security.uses_tls else None),
        _NoRedirect,
    )


def _authorization(base: str, security: SecurityConfig, timeout_s: float) -> dict[str, str]:
    """The header that says who asks. Raises UsageError, and UnavailableError without a token."""
    user, password = security.sasl_plain_username, security.sasl_plain_password
    if not security.uses_sasl:
        return {}
    what = "token" if security.uses_tokens else "password"
    parts = urllib.parse.urlsplit(base)
    is_here = parts.hostname in _HERE
    if security.security_protocol == "SASL_SSL" and parts.scheme != "https" and not is_here:
        raise UsageError(
            f"the {what} is for SASL_SSL alone, and {base} has no TLS: is https://... meant?"
        )
    if security.tokens is not None:
        try:
            token = security.tokens.wait(security.tokens.ask(timeout_s), timeout_s)
        except TokenError as error:
            raise UnavailableError(in_file_words(str(error))) from error
        return {"Authorization": f"Bearer {token.value}"}
    assert user is not None
    assert password is not None
    if ":" in user:
        raise UsageError(f"HTTP knows no user with a colon, as in {user!r}")
    credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {credentials}"}


def _parse(base: str, text: bytes) -> Json:
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise UnavailableError(f"{base} does not answer as a Kohort broker does")
    return data


def _told(base: str, error: urllib.error.HTTPError) -> str:
    """Why, in the broker's words. Without them it is not a broker, or not a recent one."""
    told = _parse(base, error.read(64 * 1024)).get("error")
    return str(told)


def _advice(base: str, error: Exception) -> str:
    reason = getattr(error, "reason", error)
    reason = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return (
        f"there is no answer from {base} ({reason})\n"
        "This question is answered by a Kohort broker on its HTTP port, kohort.metrics.port "
        "(9308, or one above it where that was taken: its log says which): is the broker running, "
        "and is the port open to here? --http tells where it is."
    )
