"""Authorization of requests to the HTTP port.

Without authentication, every requester may see everything. Otherwise requesters have the
rights of clients: pages about the whole cluster, with all groups and topics, need DESCRIBE
on the cluster; a group's pages need DESCRIBE on the group, and show only topics that the requester
may describe. Rights are checked first, so that the response for a hidden resource does not depend
on whether it exists.

The types of rights are imported at the first request, because that takes 1 ms.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from kohort.broker.core.security.session import CLUSTER_NAME
from kohort.broker.http.messages import (
    AnyPage,
    HttpRequest,
    HttpRequester,
    HttpResponse,
    HttpStream,
    ResponseOrStream,
)

if TYPE_CHECKING:
    from kohort.broker.core.security.acls import Operation, ResourceType

CHALLENGES: Final = {
    "basic": ("WWW-Authenticate", 'Basic realm="kohort", charset="UTF-8"'),
    "bearer": ("WWW-Authenticate", "Bearer"),
}


class Operator:
    """A requester that may see everything."""

    principal = "A user"

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        del operation, kind, name
        return True

    sees = may


OPERATOR: Final = Operator()


class UnauthenticatedError(Exception):
    """A request without valid credentials."""


Guard = Callable[[HttpRequest], Awaitable[HttpRequester]]
"""Authenticates the sender of a request. Raises UnauthenticatedError; if the
credentials are wrong, only after a delay."""


class AuthorizedStream:
    """A stream that ends when its requester loses the right to see it: rights are checked again
    before each chunk, because a stream may last for days.
    """

    def __init__(self, stream: HttpStream, is_allowed: Callable[[], Awaitable[bool]]) -> None:
        """`is_allowed` is called before each chunk is sent."""
        self._stream = stream
        self._is_allowed = is_allowed
        self.content_type = stream.content_type
        self.headers = stream.headers

    async def wait_chunk(self) -> bytes | None:
        chunk = await self._stream.wait_chunk()
        if chunk is not None and not await self._is_allowed():
            self.close()
            return None
        return chunk

    def close(self) -> None:
        self._stream.close()


def requester_of(request: HttpRequest) -> HttpRequester:
    """Return the sender of the request; `OPERATOR` if the port has no authentication."""
    return request.requester or OPERATOR


def principal_of(request: HttpRequest) -> str:
    return requester_of(request).principal


def sees_cluster(request: HttpRequest) -> bool:
    """Whether the requester may see the whole cluster; a denial is not logged."""
    from kohort.broker.core.security.acls import Operation, ResourceType  # noqa: PLC0415

    return requester_of(request).sees(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)


def for_operators(page: AnyPage) -> AnyPage:
    """Restrict a page to requesters that may describe the cluster."""

    async def answer(request: HttpRequest) -> ResponseOrStream:
        from kohort.broker.core.security.acls import Operation, ResourceType  # noqa: PLC0415

        if not requester_of(request).may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            return denied("DESCRIBE on the cluster")
        response = await page(request)
        if isinstance(response, HttpResponse) or request.requester is None:
            return response

        async def is_still_allowed() -> bool:
            return sees_cluster(request)

        return AuthorizedStream(response, is_still_allowed)

    return answer


def for_group_readers(page: AnyPage) -> AnyPage:
    """Restrict a page to requesters that may describe the group in its path."""

    async def answer(request: HttpRequest) -> ResponseOrStream:
        from kohort.broker.core.security.acls import Operation, ResourceType  # noqa: PLC0415

        if not requester_of(request).may(
            Operation.DESCRIBE, ResourceType.GROUP, request.path_values[0]
        ):
            return denied("DESCRIBE on the group")
        return await page(request)

    return answer


def unauthorized(schemes: tuple[str, ...]) -> HttpResponse:
    """Return the response to a request without valid credentials, with a challenge per scheme."""
    challenges = (CHALLENGES[scheme] for scheme in schemes)
    return HttpResponse.error(HTTPStatus.UNAUTHORIZED, "authentication required", *challenges)


def denied(needed: str) -> HttpResponse:
    """Return the response to a requester that lacks the permission `needed`."""
    return HttpResponse.error(HTTPStatus.FORBIDDEN, f"this page requires {needed}")
