"""Settings of the network: listeners, sockets, connections.

``listeners`` and ``advertised.listeners`` are lists of ``NAME://host:port``. The name is the
security protocol itself, or one that ``listener.security.protocol.map`` translates.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kohort.broker.config.settings import Settings

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PORT_MAX: Final = 65_535
EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound.
"""Wildcard addresses: valid to listen at, not to connect to."""


class Endpoint(NamedTuple):
    """An entry of ``listeners`` or ``advertised.listeners``."""

    listener: str
    """Name of the listener, in upper case."""
    host: str
    """Host name or address without brackets; one of `EVERY_INTERFACE` for all of them."""
    port: int
    """0 in ``listeners`` takes any free port."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Parse ``PLAINTEXT://localhost:9092``; raises ValueError with the reason."""
    name, separator, address = text.strip().partition("://")
    host, colon, port = address.rpartition(":")
    if not (separator and name and colon):
        raise ValueError(f"{text!r} is not of the form NAME://host:port")
    if not (port.isascii() and port.isdigit() and int(port) <= _PORT_MAX):
        raise ValueError(f"{text!r}: the port must be 0 to {_PORT_MAX}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    return Endpoint(name.upper(), host, int(port))


def parse_endpoints(items: Iterable[str]) -> tuple[Endpoint, ...]:
    """Parse a list of endpoints with different names; raises ValueError."""
    endpoints = tuple(parse_endpoint(item) for item in items)
    names = [endpoint.listener for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise ValueError("each listener must have a different name")
    return endpoints


def parse_protocol_map(text: str) -> dict[str, str]:
    """Parse ``INTERNAL:PLAINTEXT,EXTERNAL:SSL`` to a dict from listener to security protocol."""
    protocols = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = item.partition(":")
        if not colon or protocol.strip().upper() not in SECURITY_PROTOCOLS:
            known = ", ".join(SECURITY_PROTOCOLS)
            raise ValueError(f"{item!r} is not NAME:PROTOCOL with a protocol of {known}")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def check_listeners(items: tuple[str, ...]) -> None:
    """Raise ValueError with the error in a value of ``listeners``."""
    # As in Kafka, an IPv4 and an IPv6 address may share a port.
    ports = [(each.port, ":" in each.host) for each in parse_endpoints(items) if each.port]
    if len(set(ports)) != len(ports):
        raise ValueError("each listener must have a different port")


def check_advertised(items: tuple[str, ...] | None) -> None:
    """Raise ValueError with the error in a value of ``advertised.listeners``."""
    for endpoint in parse_endpoints(items or ()):
        # An empty host is this machine's name, as in Kafka.
        if endpoint.host == "0.0.0.0":  # noqa: S104 - compared, not bound.
            raise ValueError(f"{endpoint} has no host that a client could connect to")


def parse_ip_overrides(text: str) -> Mapping[str, int]:
    """Parse ``10.0.0.1:100,backup:5`` to a mapping from host to its limit of connections."""
    limits = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        host, _, limit = item.rpartition(":")
        if not host or not (limit.isascii() and limit.isdigit()):
            raise ValueError(f"{item!r} is not of the form host:count")
        limits[host.strip("[]")] = int(limit)
    return limits


class NetworkSettings(
    Settings,
    checks={
        "listeners": check_listeners,
        "advertised.listeners": check_advertised,
        "listener.security.protocol.map": parse_protocol_map,
        "max.connections.per.ip.overrides": parse_ip_overrides,
    },
):
    """Network."""

    listeners: tuple[str, ...]
    advertised_listeners: tuple[str, ...] | None
    listener_security_protocol_map: str
    controller_listener_names: tuple[str, ...]
    socket_send_buffer_bytes: int
    socket_receive_buffer_bytes: int
    socket_request_max_bytes: int
    queued_max_request_bytes: int
    socket_listen_backlog_size: int
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str
    max_connection_creation_rate: int
    connections_max_idle_ms: int
    fetch_max_bytes: int
