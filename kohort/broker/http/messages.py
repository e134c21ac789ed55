"""Requests and responses of the HTTP port, as its pages see them."""

import json
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple, Self

PLAIN_TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class HttpRequest(NamedTuple):
    """A request without a body; there is no page that takes one."""

    method: str
    """GET or HEAD; a page need not tell them apart."""
    path: str
    """Path as sent, without the query."""
    query: str
    """What follows the question mark, undecoded; empty without one."""
    accept: str
    """All Accept headers as one list, empty without any."""
    path_values: tuple[str, ...] = ()
    """What stood where the page's path has a name in braces, decoded; in order."""
    host: str = ""
    """What the client calls us, with the port if it says one; empty without a Host header."""


class HttpResponse(NamedTuple):
    """An answer whose length is known."""

    status: HTTPStatus
    content_type: str
    body: Sequence[bytes]
    """Parts to be sent one after the other; they may be shared between answers."""
    headers: tuple[tuple[str, str], ...] = ()
    """Beyond type, length, date and connection."""

    @classmethod
    def text(cls, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Self:
        """A line of plain text."""
        return cls(status, PLAIN_TEXT, (f"{text}\n".encode(),), headers)

    @classmethod
    def error(cls, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Self:
        """Why there is no answer, for programs: {"error": text}."""
        return cls(status, JSON, (json.dumps({"error": text}).encode() + b"\n",), headers)


class BadRequestError(Exception):
    """The path or the query cannot be understood; the text tells the peer why. Answered 400."""


Page = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Answers the requests of one path, or of one pattern of paths. May raise BadRequestError."""
