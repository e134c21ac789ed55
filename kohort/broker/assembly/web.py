"""The broker's two HTTP ports: one for health checks and metrics, one for the console."""

import json
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple

from kohort.broker.assembly.http_listener import HttpListener
from kohort.broker.assembly.metrics_page import MetricsPage, Scraped
from kohort.broker.config import BrokerConfig, LoadedConfig
from kohort.broker.config.settings import settings_of
from kohort.broker.http.health import Failing, NotReady, health_pages
from kohort.broker.http.messages import JSON, AnyPage, HttpRequest, HttpResponse
from kohort.broker.http.requesters import for_operators
from kohort.broker.http.server import HttpServer
from kohort.broker.topics.startup_progress import StartupProgress

logger = logging.getLogger(__name__)

RETRY_S: Final = 2
"""Seconds after which a browser or another client should repeat its request during the start."""

PORT_TRIES: Final = 20
"""Number of ports to try, upward from the default, if none was set."""


class PortError(OSError):
    """A port cannot be opened; the text contains the settings and alternatives."""


class WebPorts(NamedTuple):
    """The servers of both HTTP ports. Pages are added during the start, when their data are
    available.
    """

    metrics: HttpServer
    console: HttpServer

    def ports(self) -> dict[str, int]:
        """The ports that are open, by the name of their setting."""
        servers = {"kohort.metrics.port": self.metrics, "kohort.console.port": self.console}
        return {name: server.port for name, server in servers.items() if server.is_open}


def for_all_operators(pages: Mapping[str, AnyPage]) -> dict[str, AnyPage]:
    """Restrict pages to requesters that may describe the cluster."""
    return {path: for_operators(page) for path, page in pages.items()}


async def open_web_ports(
    stack: AsyncExitStack,
    loaded: LoadedConfig,
    listener: HttpListener,
    why_not_ready: NotReady,
    failing: Failing,
    startup: StartupProgress,
) -> WebPorts:
    """Open both ports; `stack` closes them. Raises PortError."""
    absent = partial(_starting_response, startup)
    # None: the page's modules are imported by the loop's default executor, because the threads of
    # the broker's executor verify logs.
    metrics_page = MetricsPage(lambda: _startup_exposition(startup), None)
    stack.push_async_callback(metrics_page.close)
    pages = {**health_pages(why_not_ready, failing), "/metrics": metrics_page.answer}
    ports = WebPorts(listener.new_server(pages, absent), listener.new_server({}, absent))
    await _open(stack, ports.metrics, loaded, "kohort.metrics", "Metrics are")
    try:
        await _open(stack, ports.console, loaded, "kohort.console", "The console is")
    except PortError as error:
        if "kohort.console.port" in loaded.given:
            raise
        # The console was not requested by a setting, so the broker starts without it.
        logger.warning("The console is not available: %s", error)
    return ports


def _starting_response(startup: StartupProgress, request: HttpRequest) -> HttpResponse | None:
    """Answer 503 with the progress until the start is over. Requests cannot be authenticated yet,
    so the response contains nothing else.
    """
    if not startup.phase:
        return None
    status, text = HTTPStatus.SERVICE_UNAVAILABLE, f"the broker is starting: {startup.text()}"
    retry = ("Retry-After", str(RETRY_S))
    if "text/html" in request.accept:
        # Browsers load the page again after this time.
        return HttpResponse.text(status, text, retry, ("Refresh", str(RETRY_S)))
    body = json.dumps({"error": text, "starting": startup.fields()}).encode()
    return HttpResponse(status, JSON, (body + b"\n",), (retry,))


def _startup_exposition(startup: StartupProgress) -> Scraped:
    from kohort.broker.metrics.exposition import StartupExposition  # noqa: PLC0415 - 50 ms.

    return StartupExposition(startup)


async def _open(
    stack: AsyncExitStack, server: HttpServer, loaded: LoadedConfig, prefix: str, what: str
) -> None:
    """Listen on a port unless it is turned off. If the port is taken and was not set explicitly,
    try the ports after it.

    Args:
        prefix: the prefix of the port's settings.
        what: the beginning of the log line about the port.

    Raises:
        PortError: none of these ports can be opened.
    """
    known = settings_of(BrokerConfig)
    host: str = getattr(loaded.config, known[f"{prefix}.host"].attribute)
    port: int = getattr(loaded.config, known[f"{prefix}.port"].attribute)
    if port < 0:
        return
    tries = 1 if f"{prefix}.port" in loaded.given else PORT_TRIES
    try:
        await server.start(host, port, tries=tries)
    except OSError as error:
        port_range = f" up to {port + tries - 1}" if tries > 1 else ""
        raise PortError(
            f"{prefix}.host={host}, {prefix}.port={port}{port_range}: {error}; another "
            "port, 0 for any free port, or -1 for none"
        ) from error
    stack.push_async_callback(server.close)
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
