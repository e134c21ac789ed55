"""Opening the broker's HTTP ports: the metrics port and the console's."""

import logging
from typing import Final, NamedTuple

from kohort.broker.http.server import HttpServer

logger = logging.getLogger(__name__)

PORT_TRIES: Final = 20
"""Number of ports to try, upward from the default, if none was set."""


class PortError(OSError):
    """A port cannot be opened; the text contains the settings and alternatives."""


class WantedPort(NamedTuple):
    """The configured address of a server."""

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
