"""Asks the JSON pages of a broker's HTTP port."""

import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, Final, TypeAlias

from kohort.cli.errors import NotFoundError, UnavailableError, UsageError

Json: TypeAlias = dict[str, Any]

_OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks the broker itself, as the Kafka client does, whatever proxy the shell has for the web."""

ANSWER_BYTES_MAX: Final = 256 << 20
"""The broker's own answers end at about 8 MB."""


def fetch(url: str, path: str, timeout_s: float) -> Json:
    """The JSON object at `path`, which is percent-encoded, below `url`.

    Raises:
        NotFoundError: the broker says that there is none; the text is the broker's.
        UnavailableError: no answer, or none that can be understood.
        UsageError: `url` is not one.
    """
    base = url.rstrip("/")
    if urllib.parse.urlsplit(base).scheme not in {"http", "https"}:
        raise UsageError(f"{url!r} is no URL; http://localhost:9308 is one")
    request = urllib.request.Request(base + path, headers={"Accept": "application/json"})  # noqa: S310 - http, as was just looked at.
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            return _parse(base, answer.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        with error:
            told = _told(base, error)
        if error.code == http.client.NOT_FOUND:
            raise NotFoundError(told) from error
        raise UnavailableError(f"{base} answers {error.code}: {told}") from error
    except (OSError, http.client.HTTPException, UnicodeError) as error:
        raise UnavailableError(_advice(base, error)) from error


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
        f"nobody answers at {base} ({reason})\n"
        "This question is answered by a Kohort broker on its HTTP port, kohort.metrics.port "
        "(9308, or one above it where that was taken: its log says which): is the broker running, "
        "and is the port open to here? --http tells where it is."
    )
