"""The paths of the transactions' pages (:mod:`kohort.broker.http.transaction_pages`, imported when
requested).
"""

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final, TypeAlias

from kohort.broker.http.messages import HttpRequest, HttpResponse, Page
from kohort.broker.http.routes import lazy_pages
from kohort.broker.runtime.clock import Clock
from kohort.broker.topics.manager import TopicManager

if TYPE_CHECKING:
    from kohort.broker.http.transaction_pages import TransactionPages
    from kohort.broker.transactions.host import TransactionHost

Ask: TypeAlias = "Callable[[TransactionPages, HttpRequest], Awaitable[HttpResponse]]"

PAGES: Final[dict[str, Ask]] = {
    "/transactions": lambda pages, request: pages.list_open(request),
    "/transactions/{id}": lambda pages, request: pages.describe(request),
    "/topics/{topic}/{partition}/transactions": lambda pages, request: pages.partition(request),
}


def transaction_pages(
    see: Callable[[], tuple["TransactionHost", TopicManager, Clock]],
    executor: Executor,
    modules: Sequence[str] = (),
) -> dict[str, Page]:
    """Return the pages by path. `see` is called at the first request, after `executor` has imported
    the pages and `modules`.
    """

    def make() -> "TransactionPages":
        from kohort.broker.http.transaction_pages import TransactionPages  # noqa: PLC0415 - see above.

        return TransactionPages(*see())

    modules = (*modules, "kohort.broker.http.transaction_pages")
    return lazy_pages(PAGES, modules, make, executor)
