"""The console's paths, and their pages in :mod:`kohort.broker.console.pages`.

The pages are imported at the first request; see `lazy_pages`. Security headers and origin checks
are applied here, for all pages.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from kohort.broker.http.lazy import lazy_pages
from kohort.broker.http.messages import AnyPage, HttpRequest, HttpResponse, ResponseOrStream

if TYPE_CHECKING:
    from kohort.broker.console.lag import AgesSeen
    from kohort.broker.console.pages import ConsolePages, GroupConsole
    from kohort.broker.console.source import ConsoleSource, GroupsSource


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
"""Values of Sec-Fetch-Site allowed in a GET of data: no browser, same origin, typed address."""

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


FILES: Final = {"/": "index", "/static/{file}": "static"}
"""Pages without an origin check: any site may link to the console."""

GROUP_DATA: Final = {
    "/events": "events",
    "/api/groups": "groups",
    "/api/groups/{group}": "group",
    "/api/groups/{group}/rebalances": "rebalances",
    "/api/groups/{group}/rebalances/{sequence}": "rebalance",
    "/api/groups/{group}/advice": "advice",
    "/api/checks": "checks",
}
"""Pages about groups; cross-site requests are rejected."""

BROKER_DATA: Final = {
    "/api/topics": "topics",
    "/api/topics/{topic}": "topic",
    "/api/topics/{topic}/records": "records",
    "/api/transactions": "transactions",
    "/api/broker": "broker",
    "/api/broker/configs": "broker_configs",
}
"""Pages about topics and the broker; cross-site requests are rejected."""

WRITES: Final = {
    "/api/groups/{group}/reset": "preview_reset",
    "POST /api/groups/{group}/reset": "reset",
}
"""Pages that change something; served only with `allows_write`. POST needs a token that GET
returns."""


def console_pages(
    see: "Callable[[], ConsoleSource]",
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

    methods = FILES | GROUP_DATA | BROKER_DATA | (WRITES if allows_write else {})
    return _pages(methods, make, executor, modules)


def group_console_pages(source: "GroupsSource", ages: "AgesSeen") -> dict[str, AnyPage]:
    """Return only the pages about groups, for `kohort watch`, which has no broker."""

    def make() -> "GroupConsole":
        from kohort.broker.console.pages import GroupConsole  # noqa: PLC0415 - see above.

        return GroupConsole(source, ages)

    return _pages(FILES | GROUP_DATA, make, source.executor)


def _pages(
    methods: Mapping[str, str],
    make: Callable[[], object],
    executor: Executor,
    modules: Sequence[str] = (),
) -> dict[str, AnyPage]:
    pages = lazy_pages(methods, make, (*modules, "kohort.broker.console.pages"), executor)
    return {path: _guarded(page, is_data=path not in FILES) for path, page in pages.items()}


def _guarded(page: AnyPage, *, is_data: bool) -> AnyPage:
    async def answer(request: HttpRequest) -> ResponseOrStream:
        response: ResponseOrStream | None = refusal(request) if is_data else None
        if response is None:
            response = await page(request)
        # An event stream adds the security headers itself.
        return guarded(response) if isinstance(response, HttpResponse) else response

    return answer
