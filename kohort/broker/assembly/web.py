"""The broker's two HTTP ports: one for health checks and metrics, one for the console."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from kohort.broker.assembly.http_listener import HttpListener
from kohort.broker.config import LoadedConfig
from kohort.broker.console.paths import console_pages, starting_pages
from kohort.broker.console.source import ConsoleSource
from kohort.broker.http.health import health_pages
from kohort.broker.http.messages import AnyPage
from kohort.broker.http.ports import PortError, WantedPort, open_port
from kohort.broker.http.requesters import for_operators
from kohort.broker.http.server import HttpServer

logger = logging.getLogger(__name__)


class WebPorts(NamedTuple):
    """Both servers. Pages are added during the start, when their data are available."""

    metrics: HttpServer
    console: HttpServer

    def show_to_operators(self, pages: Mapping[str, AnyPage]) -> None:
        """Add pages to the metrics port for requesters that may describe the cluster."""
        self.metrics.add_pages({path: for_operators(page) for path, page in pages.items()})

    def show_console(self, source: ConsoleSource) -> None:
        """Add the console's pages, also for requesters that may describe the cluster."""
        pages = console_pages(source)
        self.console.add_pages({path: for_operators(page) for path, page in pages.items()})


async def open_web_ports(
    stack: AsyncExitStack,
    loaded: LoadedConfig,
    listener: HttpListener,
    why_not_ready: Callable[[], str | None],
    failing: Callable[[], Sequence[str]],
) -> WebPorts:
    """Open both ports, so that probes are answered while the logs are recovered after a crash.

    Args:
        stack: closes the ports.
        why_not_ready: returns the reason; None once clients are served.
        failing: returns the names of background tasks that are failing.

    Raises PortError.
    """
    ports = WebPorts(
        listener.new_server(health_pages(why_not_ready, failing)),
        listener.new_server(starting_pages()),
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
        # The console was not requested by a setting, so the broker starts without it.
        logger.warning("The console is not available: %s", error)
    return ports


async def _open(stack: AsyncExitStack, server: HttpServer, wanted: WantedPort) -> None:
    """Open a port unless it is turned off. Raises PortError."""
    if wanted.port >= 0:
        await open_port(server, wanted)
        stack.push_async_callback(server.close)
