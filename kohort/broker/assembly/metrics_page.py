"""Serves GET /metrics; concurrent requests share one scrape."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from kohort.broker.http.lazy import lazily
from kohort.broker.http.messages import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from kohort.broker.config import BrokerConfig
    from kohort.broker.metrics.source import BrokerSource


class Scraped(Protocol):
    """All metrics of a process; see :class:`kohort.broker.metrics.exposition.Exposition`."""

    async def write(self) -> list[bytes]:
        """Return the exposition in parts. Must not be called again before it returns."""
        ...


def scraped_broker(
    see: "Callable[[], BrokerSource]", config: "BrokerConfig"
) -> Callable[[], Scraped]:
    """Return a function that creates a broker's exposition; `see` returns the broker's parts."""

    def make() -> Scraped:
        from kohort.broker.console.lag import Ages  # noqa: PLC0415 - not needed for the start.
        from kohort.broker.metrics.exposition import Exposition  # noqa: PLC0415 - costs 50 ms.

        source = see()
        ages = Ages(source.topics, source.clock, source.executor, source.offloaded_reads)
        return Exposition(source, config, ages.wait_oldest)

    return make


class MetricsPage:
    def __init__(
        self,
        make: Callable[[], Scraped],
        executor: Executor | None,
        modules: Sequence[str] = (),
    ) -> None:
        """`make` is called once, at the first scrape, after `executor` (None for the event loop's
        default) has imported `modules` and :mod:`kohort.broker.metrics.exposition`.
        """
        modules = (*modules, "kohort.broker.metrics.exposition")
        self._wait_exposition = lazily(make, modules, executor)
        self._running: asyncio.Task[list[bytes]] | None = None

    async def answer(self, _: HttpRequest) -> HttpResponse:
        exposition = await self._wait_exposition()
        from kohort.broker.metrics.text_format import CONTENT_TYPE  # noqa: PLC0415 - imported above.

        if self._running is None or self._running.done():
            loop = asyncio.get_running_loop()
            self._running = loop.create_task(exposition.write(), name="scrape")
        # A client that disconnects must not cancel the scrape for the others.
        parts = await asyncio.shield(self._running)
        return HttpResponse(HTTPStatus.OK, CONTENT_TYPE, parts)

    async def close(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])
