"""The broker's two HTTP ports: one for health checks and metrics, one for the console."""

import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from kohort.broker.assembly.http_listener import HttpListener
from kohort.broker.assembly.starting import starting_metrics, starting_response
from kohort.broker.config import LoadedConfig
from kohort.broker.http.health import Failing, NotReady, health_pages
from kohort.broker.http.messages import AnyPage
from kohort.broker.http.requesters import for_operators
from kohort.broker.http.server import HttpServer
from kohort.broker.topics.startup_progress import StartupProgress

logger = logging.getLogger(__name__)

PORT_TRIES: Final = 20
"""Number of ports to try, upward from the default, if none was set."""


class PortError(OSError):
    """A port cannot be opened; the text contains the settings and alternatives."""


class WantedPort(NamedTuple):
    what: str
    """Beginning of the log line about the port: "Metrics are", "The console is"."""
    prefix: str
    """Prefix of the names of its settings."""
    host: str
    """Empty for every interface."""
    port: int
    """0 for any free port."""
    is_given: bool
    """Whether it was set explicitly, so that no other port may be used."""


class WebPorts(NamedTuple):
    """Both servers. Pages are added during the start, when their data are available."""

    metrics: HttpServer
    console: HttpServer

    def ports(self) -> dict[str, int]:
        """The ports that are open, by the name of their setting."""
        servers = {"kohort.metrics.port": self.metrics, "kohort.console.port": self.console}
        return {name: server.port for name, server in servers.items() if server.is_open}

    def show_to_operators(self, pages: Mapping[str, AnyPage]) -> None:
        """Add pages to the metrics port for requesters that may describe the cluster."""
        self.metrics.add_pages({path: for_operators(page) for path, page in pages.items()})

    def show_console(self, pages: Mapping[str, AnyPage]) -> None:
        """Add the console's pages, also for requesters that may describe the cluster."""
        self.console.add_pages({path: for_operators(page) for path, page in pages.items()})


async def open_web_ports(
    stack: AsyncExitStack,
    loaded: LoadedConfig,
    listener: HttpListener,
    why_not_ready: NotReady,
    failing: Failing,
    startup: StartupProgress,
) -> WebPorts:
    """Open both ports; `stack` closes them. Raises PortError."""
    absent = starting_response(startup)
    metrics_page = starting_metrics(startup)
    stack.push_async_callback(metrics_page.close)
    pages = {**health_pages(why_not_ready, failing), "/metrics": metrics_page.answer}
    ports = WebPorts(listener.new_server(pages, absent), listener.new_server({}, absent))
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


async def open_port(server: HttpServer, wanted: WantedPort) -> None:
    """Listen on the port. If it is taken and was not set explicitly, try the next ones.

    Raises:
        PortError: none of these ports can be opened.
    """
    what, prefix, host, port, is_given = wanted
    tries = 1 if is_given else PORT_TRIES
    try:
        await server.start(host, port, tries=tries)
    except OSError as error:
        port_range = f" up to {port + tries - 1}" if tries > 1 else ""
        raise PortError(
            f"{prefix}.host={host}, {prefix}.port={port}{port_range}: {error}; another "
            "port, 0 for any free port, or -1 for none"
        ) from error
    where = host or "every interface"
    if port in {0, server.port}:
        logger.info("%s on port %d of %s", what, server.port, where)
    else:
        logger.warning(
            "%s on port %d of %s, because port %d is taken, possibly by another broker; "
            "set %s.port for a fixed port",
            what,
            server.port,
            where,
            port,
            prefix,
        )
