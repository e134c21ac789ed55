"""Pages whose modules are imported at the first request for any of these pages.

The imports take tens of milliseconds, which would slow down the broker's start or block its event
loop.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING, TypeVar

from kohort.broker.http.messages import AnyPage, HttpRequest, ResponseOrStream
from kohort.broker.http.requesters import for_group_readers

if TYPE_CHECKING:
    from kohort.broker.groups_seen import GroupsSeen, RebalancesSeen, SharesSeen
    from kohort.broker.http.group_pages import GroupPages
    from kohort.broker.http.transaction_pages import TransactionPages
    from kohort.broker.runtime.clock import Clock
    from kohort.broker.topics.manager import TopicManager
    from kohort.broker.transactions.host import TransactionHost

T = TypeVar("T")


def lazily(
    make: Callable[[], T], modules: Sequence[str], executor: Executor | None
) -> Callable[[], Awaitable[T]]:
    """Return a function whose first call imports `modules` in `executor` (None: the event loop's),
    then calls `make`; every call returns the value of `make`.
    """
    made: list[T] = []

    async def wait_made() -> T:
        if not made:
            loop = asyncio.get_running_loop()
            for module in modules:
                await loop.run_in_executor(executor, importlib.import_module, module)
            # Another request may have called `make` during the import.
            if not made:
                made.append(make())
        return made[0]

    return wait_made


def lazy_pages(
    methods: Mapping[str, str],
    make: Callable[[], object],
    modules: Sequence[str],
    executor: Executor,
) -> dict[str, AnyPage]:
    """Return the pages by path. `methods` maps each path to the name of a method of the object that
    `make` returns; see `lazily` for the other parameters.
    """
    wait_made = lazily(make, modules, executor)

    def page(method: str) -> AnyPage:
        async def answer(request: HttpRequest) -> ResponseOrStream:
            response: ResponseOrStream = await getattr(await wait_made(), method)(request)
            return response

        return answer

    return {path: page(method) for path, method in methods.items()}


def group_pages(
    see: "Callable[[], tuple[GroupsSeen, RebalancesSeen, SharesSeen]]",
    executor: Executor,
    modules: Sequence[str] = (),
) -> dict[str, AnyPage]:
    """Return GET /groups and the pages below it, by path. `see` is called at the first request,
    after `executor` has imported the pages and `modules`.
    """

    def make() -> "GroupPages":
        from kohort.broker.http.group_pages import GroupPages  # noqa: PLC0415 - see the module.

        return GroupPages(*see())

    methods = {
        "/groups": "list_groups",
        "/groups/{group}": "describe",
        "/groups/{group}/rebalances": "rebalances",
        "/groups/{group}/share": "share",
    }
    modules = (*modules, "kohort.broker.http.group_pages")
    pages = lazy_pages(methods, make, modules, executor)
    # GET /groups is not restricted: its list contains only groups that the requester may see.
    return {
        path: page if path == "/groups" else for_group_readers(page) for path, page in pages.items()
    }


def transaction_pages(
    see: "Callable[[], tuple[TransactionHost, TopicManager, Clock]]",
    executor: Executor,
    modules: Sequence[str] = (),
) -> dict[str, AnyPage]:
    """Return the pages about transactions, by path; see `group_pages`."""

    def make() -> "TransactionPages":
        from kohort.broker.http.transaction_pages import TransactionPages  # noqa: PLC0415 - as above.

        return TransactionPages(*see())

    methods = {
        "/transactions": "list_open",
        "/transactions/{id}": "describe",
        "/topics/{topic}/{partition}/transactions": "partition",
    }
    modules = (*modules, "kohort.broker.http.transaction_pages")
    return lazy_pages(methods, make, modules, executor)
