"""The addresses that a broker listens on, and those that it advertises to clients."""

import logging
import socket
from errno import EADDRINUSE
from itertools import chain
from typing import Final, NamedTuple

from kohort.broker.config import BrokerConfig, Endpoint
from kohort.broker.config.network import EVERY_INTERFACE
from kohort.broker.environment import Environment
from kohort.broker.network.server.listening import (
    close_all,
    connections_within,
    reserve_descriptors,
    senders_within,
)
from kohort.broker.storage.filesystem import OPEN_FILES_MAX

logger = logging.getLogger(__name__)

FEW_CONNECTIONS: Final = 1_000
"""A warning is logged if the operating system allows fewer connections than this."""


class AddressError(Exception):
    """A listener's address cannot be bound; the text contains it."""


class Addresses:
    """Binds the addresses of all listeners, without listening on them yet."""

    def __init__(self, config: BrokerConfig, environment: Environment) -> None:
        """Store the settings; `bind` binds the addresses."""
        self._config = config
        self._environment = environment
        self.sockets: dict[str, list[socket.socket]] = {}
        self.bound: list[Endpoint] = []
        """The endpoints with their actual ports, in the order of `listeners`."""

    def bind(self) -> None:
        """Bind all addresses. Raises AddressError."""
        for endpoint in self._config.listener_endpoints:
            try:
                sockets = self._environment.bind(
                    endpoint.host,
                    endpoint.port,
                    send_buffer_bytes=self._config.socket_send_buffer_bytes,
                    receive_buffer_bytes=self._config.socket_receive_buffer_bytes,
                )
            except OSError as error:
                remedy = "; `listeners` can set another port" if error.errno == EADDRINUSE else ""
                raise AddressError(
                    f"listener {endpoint} cannot be opened: {error}{remedy}"
                ) from error
            self.sockets[endpoint.listener] = sockets
            port = sockets[0].getsockname()[1]
            self.bound.append(Endpoint(endpoint.listener, endpoint.host, port))

    def close(self) -> None:
        close_all(chain(*self.sockets.values()))

    def advertised(self, bound: Endpoint) -> Endpoint:
        """Return the advertised address of a listener; if it has none, the first advertised
        address.
        """
        advertised = self._config.advertised_endpoints
        matching = [endpoint for endpoint in advertised if endpoint.listener == bound.listener]
        chosen = (matching or advertised)[0]
        host = socket.gethostname() if chosen.host in EVERY_INTERFACE else chosen.host
        return Endpoint(chosen.listener, host, chosen.port or bound.port)


class DescriptorShares(NamedTuple):
    """The division of the process's file descriptors among their uses."""

    connections: int
    senders: int
    """Maximum number of connections with a second descriptor, which is used to send files."""


def descriptor_shares(config: BrokerConfig, environment: Environment) -> DescriptorShares:
    """Divide the file descriptors that this process may open among connections and senders."""
    descriptors = environment.descriptor_limit()
    reserve_descriptors(descriptors)
    possible = connections_within(descriptors, OPEN_FILES_MAX)
    if possible < min(config.max_connections, FEW_CONNECTIONS):
        logger.warning(
            "At most %d connections, because this process may open %d files (ulimit -n)",
            possible,
            descriptors,
        )
    return DescriptorShares(possible, senders_within(descriptors))
