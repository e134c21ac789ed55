"""The paths of the groups' pages (:mod:`kohort.broker.http.group_pages`, imported when asked)."""

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kohort.broker.groups_seen import GroupsSeen, RebalancesSeen
from kohort.broker.http.messages import AnyPage, HttpRequest, HttpResponse, Page
from kohort.broker.http.requesters import for_group_readers
from kohort.broker.http.routes import lazy_pages

if TYPE_CHECKING:
    from kohort.broker.http.group_pages import GroupPages

Ask: TypeAlias = "Callable[[GroupPages, HttpRequest], Awaitable[HttpResponse]]"


class _Page(NamedTuple):
    """A page's access check, and its method."""

    rights: Callable[[Page], AnyPage]
    ask: Ask


PAGES: Final = {
    # Lists only groups that the requester may see.
    "/groups": _Page(lambda page: page, lambda pages, request: pages.list_groups(request)),
    "/groups/{group}": _Page(for_group_readers, lambda pages, request: pages.describe(request)),
    "/groups/{group}/rebalances": _Page(
        for_group_readers, lambda pages, request: pages.rebalances(request)
    ),
}


def group_pages(
    see: Callable[[], tuple[GroupsSeen, RebalancesSeen]],
    executor: Executor,
    modules: Sequence[str] = (),
) -> dict[str, AnyPage]:
    """Return GET /groups and the pages below it, by path. `see` is called at the first request,
    after `executor` has imported the pages and `modules`.
    """

    def make() -> "GroupPages":
        from kohort.broker.http.group_pages import GroupPages  # noqa: PLC0415 - see above.

        return GroupPages(*see())

    asks = {path: page.ask for path, page in PAGES.items()}
    modules = (*modules, "kohort.broker.http.group_pages")
    pages = lazy_pages(asks, modules, make, executor)
    return {path: PAGES[path].rights(page) for path, page in pages.items()}
