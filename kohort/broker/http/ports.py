"""Opening the broker's HTTP ports: the metrics port and the console's."""

import logging
from typing import Final, NamedTuple

from kohort.broker.http.server import HttpServer

logger = logging.getLogger(__name__)

PORT_TRIES: Final = 20
"""Number of ports that are tried, upward from the default, if none was set."""


class PortError(OSError):
    """A port cannot be opened; the text names the settings and alternatives."""


class WantedPort(NamedTuple):
    """The address for a server to listen on."""

    what: str
    """The server's name, for the log: "Metrics are", "The console is"."""
    prefix: str
    """Prefix of the names of its settings."""
    host: str
    """Empty for every interface."""
    port: int
    """0 for any free one."""
    is_given: bool
    """Whether it was set explicitly, so that no other port may be used."""


async def open_port(server: HttpServer, wanted: WantedPort) -> None:
    """Listen on the port; if it was not set explicitly, on one of the next if it is taken.

    Raises:
        PortError: no such port can be opened.
    """
    what, prefix, host, port, is_given = wanted
    tries = 1 if is_given else PORT_TRIES
    try:
        await server.start(host, port, tries=tries)
    except OSError as error:
        tried = f" up to {port + tries - 1}" if tries > 1 else ""
        raise PortError(
            f"{prefix}.host={host}, {prefix}.port={port}{tried}: {error}; another "
            "port, 0 for any free one, or -1 for none"
        ) from error
    where = host or "every interface"
    if port in {0, server.port}:
        logger.info("%s on port %d of %s", what, server.port, where)
    else:
        logger.warning(
            "%s on port %d of %s, because port %d is taken, by another broker "
            "perhaps; %s.port sets one that stays",
            what,
            server.port,
            where,
            port,
            prefix,
        )
