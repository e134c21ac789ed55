"""Serves GET /metrics; concurrent requests share one scrape."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from http import HTTPStatus
from typing import TYPE_CHECKING, Protocol

from kohort.broker.http.lazy import lazily
from kohort.broker.http.messages import HttpRequest, HttpResponse

if TYPE_CHECKING:
    from kohort.broker.metrics.source import BrokerSource, MetricsConfig
    from kohort.broker.metrics.text_format import TextFormat


class Scraped(Protocol):
    """All metrics of a process; see :class:`kohort.broker.metrics.exposition.Exposition`."""

    async def write(self, text_format: "TextFormat") -> list[bytes]:
        """Return the exposition in parts. Must not be called again before it returns."""
        ...


def scraped_broker(
    see: "Callable[[], BrokerSource]", config: "MetricsConfig"
) -> Callable[[], Scraped]:
    """Return a function that makes the exposition of a broker, of what `see` returns."""

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
        """`make` is called once, at the first scrape, after `executor` (None for the event loop's)
        has imported `modules` and :mod:`kohort.broker.metrics.exposition`.
        """
        modules = (*modules, "kohort.broker.metrics.exposition")
        self._wait_exposition = lazily(make, modules, executor)
        self._lock = asyncio.Lock()
        self._running: dict[TextFormat, asyncio.Task[list[bytes]]] = {}

    async def answer(self, request: HttpRequest) -> HttpResponse:
        exposition = await self._wait_exposition()
        from kohort.broker.metrics.text_format import TextFormat  # noqa: PLC0415 - imported above.

        wants_openmetrics = prefers_openmetrics(request.accept)
        text_format = TextFormat.OPENMETRICS if wants_openmetrics else TextFormat.PROMETHEUS
        task = self._running.get(text_format)
        if task is None:
            work = self._write(exposition, text_format)
            task = asyncio.get_running_loop().create_task(work, name="scrape")
            self._running[text_format] = task
            task.add_done_callback(lambda _: self._running.pop(text_format))
        # A client that disconnects must not cancel the scrape for the others.
        parts = await asyncio.shield(task)
        return HttpResponse(HTTPStatus.OK, text_format.value, parts)

    async def close(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _write(self, exposition: Scraped, text_format: "TextFormat") -> list[bytes]:
        async with self._lock:
            return await exposition.write(text_format)


def prefers_openmetrics(accept: str) -> bool:
    """Whether an Accept header ranks OpenMetrics above plain text; no header means plain text."""
    openmetrics = text = 0.0
    for item in accept.split(","):
        media_type, *parameters = (part.strip().lower() for part in item.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                quality = _quality(value)
        if media_type == "application/openmetrics-text":
            openmetrics = max(openmetrics, quality)
        elif media_type in {"text/plain", "text/*", "*/*"}:
            text = max(text, quality)
    return openmetrics > text


def _quality(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return 0.0
