"""Requests and responses of the HTTP port, as its pages use them."""

import json
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self, TypeAlias

if TYPE_CHECKING:
    from kohort.broker.core.security.acls import Operation, ResourceType

PLAIN_TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"


class HttpRequester(Protocol):
    @property
    def principal(self) -> str:
        """The requester's principal as text, for the log."""
        ...

    def may(self, operation: "Operation", kind: "ResourceType", name: str) -> bool:
        """Whether the requester may perform `operation` on the resource; a denial is logged."""
        ...

    def sees(self, operation: "Operation", kind: "ResourceType", name: str) -> bool:
        """Whether a list for the requester may include the resource; a denial is not logged."""
        ...


class HttpRequest(NamedTuple):
    """A request without a body; no page accepts one."""

    method: str
    """GET, HEAD or POST. A page handles HEAD like GET; see `HttpServer`."""
    path: str
    """Path as sent, without the query."""
    query: str
    """The part after the question mark, undecoded; empty without one."""
    accept: str
    """All Accept headers as one list; empty without any."""
    path_values: tuple[str, ...] = ()
    """Values of the names in braces in the page's path, decoded and in order."""
    host: str = ""
    """The Host header, with the port if given; empty without one."""
    if_none_match: str = ""
    """The If-None-Match header: entity tags of the client's cached copies; empty without one."""
    accept_encoding: str = ""
    """The Accept-Encoding header; empty without one."""
    fetch_site: str = ""
    """The Sec-Fetch-Site header: how the origin of the requesting page relates to this server's;
    empty without one."""
    confirm: str = ""
    """The Kohort-Confirm header, which POST needs; empty without one."""
    authorization: str = ""
    """The Authorization header; empty without one."""
    ip: str = ""
    requester: HttpRequester | None = None
    """The sender; None if the port has no authentication."""

    def __repr__(self) -> str:
        return f"HttpRequest({self.method} {self.path})"


class HttpResponse(NamedTuple):
    status: HTTPStatus
    content_type: str
    body: Sequence[bytes]
    """Parts to be sent in order; they may be shared between responses."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers besides Content-Type and Content-Length."""

    @classmethod
    def text(cls, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Self:
        """Build a response with one line of plain text."""
        return cls(status, PLAIN_TEXT, (f"{text}\n".encode(),), headers)

    @classmethod
    def error(cls, status: HTTPStatus, text: str, *headers: tuple[str, str]) -> Self:
        """Build a JSON response of the form {"error": text}."""
        return cls(status, JSON, (json.dumps({"error": text}).encode() + b"\n",), headers)


class HttpStream(Protocol):
    """A response of unknown length, sent until either side ends it."""

    @property
    def content_type(self) -> str: ...

    @property
    def headers(self) -> tuple[tuple[str, str], ...]:
        """Headers besides Content-Type and Content-Length."""
        ...

    async def wait_chunk(self) -> bytes | None:
        """Return the next chunk, None at the end. Called only when the connection can send more, so
        that nothing accumulates for a slow client.
        """
        ...

    def close(self) -> None:
        """End `wait_chunk`, because the client has disconnected. May be called more than once."""
        ...


ResponseOrStream: TypeAlias = HttpResponse | HttpStream


class BadRequestError(Exception):
    """The path or the query is invalid. The response is 400 with this error's text."""


Page: TypeAlias = Callable[[HttpRequest], Awaitable[HttpResponse]]
"""Answers the requests of one path, or of one pattern of paths. May raise BadRequestError."""

AnyPage: TypeAlias = Callable[[HttpRequest], Awaitable[ResponseOrStream]]
