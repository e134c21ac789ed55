"""The paths of the pages about groups; see :mod:`kohort.broker.http.group_pages`.

That module imports the code for records of the history, which takes 30 ms; see `lazy_pages`.
"""

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from kohort.broker.coordinator import GroupCoordinator
from kohort.broker.history.history import RebalanceHistory
from kohort.broker.http.lazy import lazy_pages
from kohort.broker.http.messages import AnyPage, HttpRequest, HttpResponse, Page
from kohort.broker.http.visitors import for_those_of_the_group

if TYPE_CHECKING:
    from kohort.broker.http.group_pages import GroupPages

Ask: TypeAlias = "Callable[[GroupPages, HttpRequest], Awaitable[HttpResponse]]"


class _Page(NamedTuple):
    """A page's access check, and its method."""

    rights: Callable[[Page], AnyPage]
    ask: Ask


PAGES: Final = {
    # Lists the groups that its visitor may see.
    "/groups": _Page(lambda page: page, lambda pages, request: pages.list_groups(request)),
    "/groups/{group}": _Page(
        for_those_of_the_group, lambda pages, request: pages.describe(request)
    ),
    "/groups/{group}/rebalances": _Page(
        for_those_of_the_group, lambda pages, request: pages.rebalances(request)
    ),
}


def group_pages(
    groups: GroupCoordinator, history: RebalanceHistory, executor: Executor
) -> dict[str, AnyPage]:
    """Return GET /groups and the pages below it, by path; `executor` runs the imports."""

    def make() -> "GroupPages":
        from kohort.broker.http.group_pages import GroupPages  # noqa: PLC0415 - see above.

        return GroupPages(groups, history)

    asks = {path: one.ask for path, one in PAGES.items()}
    pages = lazy_pages(asks, "kohort.broker.http.group_pages", make, executor)
    return {path: PAGES[path].rights(page) for path, page in pages.items()}
