"""Visitors of the HTTP port, and their rights.

Without authentication, the port is for operators and shows everything. Otherwise visitors have the
rights of clients: pages that describe the cluster, and with it all groups and topics, need DESCRIBE
on the cluster; a group's pages need DESCRIBE on the group, and tell the topics that the visitor may
describe. Rights are checked first, so that the answer for a hidden resource does not depend on
whether it exists.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from kohort.broker.core.security.acls import CLUSTER_NAME, Operation, ResourceType
from kohort.broker.http.messages import (
    AnyPage,
    HttpRequest,
    HttpResponse,
    HttpStream,
    Page,
    ResponseOrStream,
    Visitor,
)

CHALLENGES: Final = {
    "basic": ("WWW-Authenticate", 'Basic realm="kohort", charset="UTF-8"'),
    "bearer": ("WWW-Authenticate", "Bearer"),
}
"""WWW-Authenticate challenges, by `kohort.http.authentication`."""


class Operator:
    """A visitor who may see everything."""

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Always allowed."""
        del operation, kind, name
        return True

    sees = may


OPERATOR: Final = Operator()


class StrangerError(Exception):
    """A visitor without valid credentials."""


Guard = Callable[[HttpRequest], Awaitable[Visitor]]
"""Authenticates the sender of a request. Raises StrangerError, with a delay after wrong
credentials."""


class StreamOfVisitor:
    """A stream that ends when its visitor may not see it any more: it may go on for days, and the
    visitor was asked at its beginning.
    """

    def __init__(self, stream: HttpStream, is_allowed: Callable[[], Awaitable[bool]]) -> None:
        """`is_allowed` is asked before each chunk."""
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


def visitor_of(request: HttpRequest) -> Visitor:
    """Return the sender; an operator if there is no authentication."""
    return request.visitor or OPERATOR


def sees_cluster(request: HttpRequest) -> bool:
    """Whether the visitor may see the whole cluster; a denial is not logged."""
    return visitor_of(request).sees(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)


def for_operators(page: AnyPage) -> AnyPage:
    """Restrict a page to visitors that may describe the cluster."""

    async def answer(request: HttpRequest) -> ResponseOrStream:
        if not visitor_of(request).may(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
            return _denied("DESCRIBE on the cluster")
        told = await page(request)
        if isinstance(told, HttpResponse) or request.visitor is None:
            return told

        async def may_still() -> bool:
            return sees_cluster(request)

        return StreamOfVisitor(told, may_still)

    return answer


def for_those_of_the_group(page: Page) -> Page:
    """Restrict a page to visitors that may describe the group in its path."""

    async def answer(request: HttpRequest) -> HttpResponse:
        if not visitor_of(request).may(
            Operation.DESCRIBE, ResourceType.GROUP, request.path_values[0]
        ):
            return _denied("DESCRIBE on the group")
        return await page(request)

    return answer


def unauthorized(ways: tuple[str, ...]) -> HttpResponse:
    """Return the answer to a visitor without valid credentials, with the ways to authenticate."""
    challenges = (CHALLENGES[one] for one in ways)
    return HttpResponse.error(HTTPStatus.UNAUTHORIZED, "say who you are", *challenges)


def _denied(needed: str) -> HttpResponse:
    return HttpResponse.error(HTTPStatus.FORBIDDEN, f"that needs {needed}")
