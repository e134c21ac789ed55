"""The broker's two ports for HTTP: probes and metrics, and the console."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from kohort.broker.assembly.http_door import HttpDoor
from kohort.broker.config import LoadedConfig
from kohort.broker.console.paths import console_pages, starting_pages
from kohort.broker.console.source import ConsoleSource
from kohort.broker.http.health import health_pages
from kohort.broker.http.messages import AnyPage
from kohort.broker.http.ports import PortError, WantedPort, open_port
from kohort.broker.http.server import HttpServer
from kohort.broker.http.visitors import for_operators

logger = logging.getLogger(__name__)


class WebPorts(NamedTuple):
    """Both servers, which get their pages when there is something to show."""

    metrics: HttpServer
    console: HttpServer

    def show_to_operators(self, pages: Mapping[str, AnyPage]) -> None:
        """Add pages beside the metrics for those who may see all of the broker."""
        self.metrics.add_pages({path: for_operators(page) for path, page in pages.items()})

    def show_console(self, source: ConsoleSource) -> None:
        """Add the console's pages, which likewise show all of the broker."""
        pages = console_pages(source)
        self.console.add_pages({path: for_operators(page) for path, page in pages.items()})


async def open_web_ports(
    stack: AsyncExitStack,
    loaded: LoadedConfig,
    door: HttpDoor,
    why_not_ready: Callable[[], str | None],
    failing: Callable[[], Sequence[str]],
) -> WebPorts:
    """Answer probes before the logs are open, which may take a while after a crash.

    Args:
        stack: closes them.
        why_not_ready: None once clients are served.
        failing: names of the broker's own tasks that fail.

    Raises PortError.
    """
    ports = WebPorts(
        door.new_server(health_pages(why_not_ready, failing)), door.new_server(starting_pages())
    )
    config, given = loaded.config, loaded.given
    metrics = WantedPort(
        "Metrics are",
        "kohort.metrics",
        config.kohort_metrics_host,
        config.kohort_metrics_port,
        "kohort.metrics.port" in given,
    )
    console = WantedPort(
        "The console is",
        "kohort.console",
        config.kohort_console_host,
        config.kohort_console_port,
        "kohort.console.port" in given,
    )
    await _open(stack, ports.metrics, metrics)
    try:
        await _open(stack, ports.console, console)
    except PortError as error:
        if console.is_given:
            raise
        # No setting asked for it, so the broker serves its clients without it.
        logger.warning("There is no console: %s", error)
    return ports


async def _open(stack: AsyncExitStack, server: HttpServer, wanted: WantedPort) -> None:
    """Open a port that is not turned off. Raises PortError."""
    if wanted.port >= 0:
        await open_port(server, wanted)
        stack.push_async_callback(server.close)
