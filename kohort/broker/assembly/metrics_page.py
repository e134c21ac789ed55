"""Serves GET /metrics; concurrent requests share one scrape."""

import asyncio
import importlib
from concurrent.futures import Executor
from http import HTTPStatus
from typing import TYPE_CHECKING

from kohort.broker.http.messages import HttpRequest, HttpResponse
from kohort.broker.metrics.broker_metrics import BrokerMetrics, MetricsConfig, MetricsSource

if TYPE_CHECKING:
    from kohort.broker.metrics.exposition import Exposition
    from kohort.broker.metrics.text_format import TextFormat


class MetricsPage:
    def __init__(
        self,
        metrics: BrokerMetrics,
        source: MetricsSource,
        config: MetricsConfig,
        executor: Executor,
    ) -> None:
        """`executor` runs the imports before the first scrape."""
        self._metrics = metrics
        self._source = source
        self._config = config
        self._executor = executor
        self._lock = asyncio.Lock()
        self._exposition: Exposition | None = None
        self._running: dict[TextFormat, asyncio.Task[list[bytes]]] = {}

    async def answer(self, request: HttpRequest) -> HttpResponse:
        await self._wait_imported()
        from kohort.broker.metrics.text_format import TextFormat  # noqa: PLC0415 - imported above.

        wants_openmetrics = prefers_openmetrics(request.accept)
        text_format = TextFormat.OPENMETRICS if wants_openmetrics else TextFormat.PROMETHEUS
        task = self._running.get(text_format)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._write(text_format), name="scrape")
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

    async def _write(self, text_format: "TextFormat") -> list[bytes]:
        async with self._lock:
            if self._exposition is None:
                from kohort.broker.metrics.exposition import Exposition  # noqa: PLC0415 - costs 50 ms.

                self._exposition = Exposition(self._metrics, self._source, self._config)
            return await self._exposition.write(text_format)

    async def _wait_imported(self) -> None:
        """Import prometheus-client on another thread, so that the event loop is not blocked."""
        if self._exposition is None:
            await asyncio.get_running_loop().run_in_executor(
                self._executor, importlib.import_module, "kohort.broker.metrics.exposition"
            )


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
