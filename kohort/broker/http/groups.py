"""The pages about groups, as paths that lead to :mod:`kohort.broker.http.group_pages`.

That imports what writes and reads records of the history, 30 ms of work that neither the start of a
broker nor a turn of its loop has time for: a thread does it when the first request comes.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, TypeAlias

from kohort.broker.coordinator import GroupCoordinator
from kohort.broker.history.history import RebalanceHistory
from kohort.broker.http.messages import HttpRequest, HttpResponse, Page

if TYPE_CHECKING:
    from kohort.broker.http.group_pages import GroupPages

Ask: TypeAlias = "Callable[[GroupPages, HttpRequest], Awaitable[HttpResponse]]"


def group_pages(
    groups: GroupCoordinator, history: RebalanceHistory, executor: Executor
) -> dict[str, Page]:
    """GET /groups and what is below it, by path; `executor` does the imports."""
    made: list[GroupPages] = []

    async def wait_made() -> "GroupPages":
        if not made:
            loop = asyncio.get_running_loop()
            name = "kohort.broker.http.group_pages"
            await loop.run_in_executor(executor, importlib.import_module, name)
            from kohort.broker.http.group_pages import GroupPages  # noqa: PLC0415 - see above.

            if not made:
                made.append(GroupPages(groups, history))
        return made[0]

    def page(ask: Ask) -> Page:
        async def answer(request: HttpRequest) -> HttpResponse:
            return await ask(await wait_made(), request)

        return answer

    return {
        "/groups": page(lambda pages, request: pages.list_groups(request)),
        "/groups/{group}": page(lambda pages, request: pages.describe(request)),
        "/groups/{group}/rebalances": page(lambda pages, request: pages.rebalances(request)),
    }
