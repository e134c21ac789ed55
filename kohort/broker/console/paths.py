"""The console's paths, and their pages in :mod:`kohort.broker.console.pages`.

The pages are imported at the first request; see `lazy_pages`. Security headers and origin checks
are applied here, for all pages.
"""

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from kohort.broker.console.source import ConsoleSource, GroupsSource
from kohort.broker.http.messages import AnyPage, HttpRequest, HttpResponse, ResponseOrStream
from kohort.broker.http.routes import lazy_pages

if TYPE_CHECKING:
    from kohort.broker.console.lag import AgesSeen
    from kohort.broker.console.pages import ConsolePages, GroupConsole


POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", POLICY),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
)

_OWN: Final = frozenset({"", "same-origin", "none"})
"""Allowed values of Sec-Fetch-Site for data: absent (no browser), this site, the address bar."""

_OWN_POST: Final = frozenset({"", "same-origin"})


def refusal(request: HttpRequest) -> HttpResponse | None:
    """Return the error response to a cross-site request for data; None for allowed requests."""
    if request.fetch_site in (_OWN_POST if request.method == "POST" else _OWN):
        return None
    text = "cross-site request rejected (Sec-Fetch-Site)"
    return HttpResponse.error(HTTPStatus.FORBIDDEN, text)


def guarded(response: HttpResponse) -> HttpResponse:
    given = {name for name, _ in response.headers}
    added = tuple(header for header in HEADERS if header[0] not in given)
    return response._replace(headers=response.headers + added)


P = TypeVar("P")

Asks: TypeAlias = dict[str, Callable[[P, HttpRequest], Awaitable[ResponseOrStream]]]

FILES: "Final[Asks[GroupConsole]]" = {
    "/": lambda pages, request: pages.index(request),
    "/static/{file}": lambda pages, request: pages.static(request),
}
"""Pages without an origin check: any site may link to the console."""

GROUP_DATA: "Final[Asks[GroupConsole]]" = {
    "/events": lambda pages, request: pages.events(request),
    "/api/groups": lambda pages, request: pages.groups(request),
    "/api/groups/{group}": lambda pages, request: pages.group(request),
    "/api/groups/{group}/rebalances": lambda pages, request: pages.rebalances(request),
    "/api/groups/{group}/rebalances/{sequence}": lambda pages, request: pages.rebalance(request),
    "/api/groups/{group}/advice": lambda pages, request: pages.advice(request),
    "/api/checks": lambda pages, request: pages.checks(request),
}
"""Pages about groups. Requests for data from pages of other sites are rejected."""

BROKER_DATA: "Final[Asks[ConsolePages]]" = {
    "/api/topics": lambda pages, request: pages.topics(request),
    "/api/topics/{topic}": lambda pages, request: pages.topic(request),
    "/api/topics/{topic}/records": lambda pages, request: pages.records(request),
    "/api/transactions": lambda pages, request: pages.transactions(request),
    "/api/broker": lambda pages, _: pages.broker(),
    "/api/broker/configs": lambda pages, request: pages.broker_configs(request),
}
"""Pages about topics and the broker, with the same check."""

WRITES: "Final[Asks[ConsolePages]]" = {
    "/api/groups/{group}/reset": lambda pages, request: pages.preview_reset(request),
    "POST /api/groups/{group}/reset": lambda pages, request: pages.reset(request),
}
"""Pages that change something, if that is allowed. POST needs a token that GET returns."""


def console_pages(
    see: Callable[[], ConsoleSource],
    executor: Executor,
    modules: Sequence[str] = (),
    *,
    allows_write: bool = False,
) -> dict[str, AnyPage]:
    """Return all pages. `see` is called at the first request, after `executor` has imported the
    pages and `modules`.
    """

    def make() -> "ConsolePages":
        from kohort.broker.console.pages import ConsolePages  # noqa: PLC0415 - see above.

        return ConsolePages(see())

    asks: Asks[ConsolePages] = {**FILES, **GROUP_DATA, **BROKER_DATA}
    if allows_write:
        asks |= WRITES
    return _pages(asks, make, executor, modules)


def group_console_pages(source: GroupsSource, ages: "AgesSeen") -> dict[str, AnyPage]:
    """Return the pages about groups alone."""

    def make() -> "GroupConsole":
        from kohort.broker.console.pages import GroupConsole  # noqa: PLC0415 - see above.

        return GroupConsole(source, ages)

    return _pages({**FILES, **GROUP_DATA}, make, source.executor)


def _pages(
    asks: Asks[P], make: Callable[[], P], executor: Executor, modules: Sequence[str] = ()
) -> dict[str, AnyPage]:
    pages = lazy_pages(asks, (*modules, "kohort.broker.console.pages"), make, executor)
    return {path: _guarded(page, is_data=path not in FILES) for path, page in pages.items()}


def _guarded(page: AnyPage, *, is_data: bool) -> AnyPage:
    async def answer(request: HttpRequest) -> ResponseOrStream:
        response: ResponseOrStream | None = refusal(request) if is_data else None
        if response is None:
            response = await page(request)
        # A stream sets these headers itself.
        return guarded(response) if isinstance(response, HttpResponse) else response

    return answer
