"""The console's paths, and their pages in :mod:`kohort.broker.console.pages`.

The pages are imported at the first request; see `lazy_pages`. Security headers and origin checks
(:mod:`kohort.broker.console.security`) are applied here, for all pages.
"""

from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeAlias

from kohort.broker.console.security import guarded, refusal
from kohort.broker.console.source import ConsoleSource
from kohort.broker.http.messages import AnyPage, HttpRequest, HttpResponse, ResponseOrStream
from kohort.broker.http.routes import lazy_pages

if TYPE_CHECKING:
    from kohort.broker.console.pages import ConsolePages

Ask: TypeAlias = "Callable[[ConsolePages, HttpRequest], Awaitable[ResponseOrStream]]"

FILES: "Final[dict[str, Ask]]" = {
    "/": lambda pages, request: pages.index(request),
    "/static/{file}": lambda pages, request: pages.static(request),
}
"""Pages without an origin check: any site may link to the console."""

DATA: "Final[dict[str, Ask]]" = {
    "/events": lambda pages, request: pages.events(request),
    "/api/groups": lambda pages, request: pages.groups(request),
    "/api/groups/{group}": lambda pages, request: pages.group(request),
    "/api/groups/{group}/rebalances": lambda pages, request: pages.rebalances(request),
    "/api/groups/{group}/rebalances/{sequence}": lambda pages, request: pages.rebalance(request),
    "/api/groups/{group}/advice": lambda pages, request: pages.advice(request),
    "/api/checks": lambda pages, _: pages.checks(),
    "/api/topics": lambda pages, request: pages.topics(request),
    "/api/topics/{topic}": lambda pages, request: pages.topic(request),
    "/api/broker": lambda pages, _: pages.broker(),
}
"""Pages with an origin check: requests from pages of other sites are rejected."""


def starting_pages() -> dict[str, AnyPage]:
    """Return the pages that exist before the groups are loaded."""

    async def starting(_: HttpRequest) -> HttpResponse:
        return HttpResponse.text(
            HTTPStatus.SERVICE_UNAVAILABLE, "the broker is starting", ("Retry-After", "1")
        )

    return {"/": starting}


def console_pages(source: ConsoleSource) -> dict[str, AnyPage]:
    def make() -> "ConsolePages":
        from kohort.broker.console.pages import ConsolePages  # noqa: PLC0415 - see above.

        return ConsolePages(source)

    pages = lazy_pages(FILES | DATA, "kohort.broker.console.pages", make, source.executor)
    return {path: _guarded(page, is_data=path in DATA) for path, page in pages.items()}


def _guarded(page: AnyPage, *, is_data: bool) -> AnyPage:
    async def answer(request: HttpRequest) -> ResponseOrStream:
        response: ResponseOrStream | None = refusal(request) if is_data else None
        if response is None:
            response = await page(request)
        # A stream sets these headers itself.
        return guarded(response) if isinstance(response, HttpResponse) else response

    return answer
