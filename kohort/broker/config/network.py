"""Settings of the network: listeners, sockets, connections.

``listeners`` and ``advertised.listeners`` are lists of ``NAME://host:port``. The name is the
security protocol itself, or one that ``listener.security.protocol.map`` translates.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kohort.broker.config.settings import INT_MAX, Int, List, Long, Settings, String, setting

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PORT_MAX: Final = 65_535
EVERY_INTERFACE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared, not bound.
"""Wildcard addresses: valid to listen at, not to connect to."""


class Endpoint(NamedTuple):
    """An entry of ``listeners`` or ``advertised.listeners``."""

    listener: str
    """Name of the listener, in upper case."""
    host: str
    """Host name or address without brackets; one of `EVERY_INTERFACE` for all interfaces."""
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
    """Parse a list of endpoints, whose listener names must differ; raises ValueError."""
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
    """Raise ValueError if a value of ``listeners`` is invalid."""
    # As in Kafka, an IPv4 and an IPv6 address may share a port.
    ports = [(each.port, ":" in each.host) for each in parse_endpoints(items) if each.port]
    if len(set(ports)) != len(ports):
        raise ValueError("each listener must have a different port")


def check_advertised(items: tuple[str, ...] | None) -> None:
    """Raise ValueError if a value of ``advertised.listeners`` is invalid."""
    for endpoint in parse_endpoints(items or ()):
        # An empty host is this machine's name, as in Kafka.
        if endpoint.host == "0.0.0.0":  # noqa: S104 - compared, not bound.
            raise ValueError(f"{endpoint} has no host that a client could connect to")


def parse_ip_overrides(text: str) -> Mapping[str, int]:
    """Parse ``10.0.0.1:100,backup:5`` to a mapping from host to connection limit."""
    limits = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        host, _, limit = item.rpartition(":")
        if not host or not (limit.isascii() and limit.isdigit()):
            raise ValueError(f"{item!r} is not of the form host:count")
        limits[host.strip("[]")] = int(limit)
    return limits


class NetworkSettings(Settings):
    """Network."""

    listeners: List = setting(
        ("PLAINTEXT://localhost:9092",),
        check=check_listeners,
        doc="Addresses to accept connections at, as NAME://host:port. An empty host means "
        "every interface, port 0 any free port. Kafka's default is every interface. The default "
        "here is this machine only, because PLAINTEXT does not authenticate clients.",
    )
    advertised_listeners: List | None = setting(
        None,
        check=check_advertised,
        doc="Addresses to which clients connect, by listener name. Unset: the address of "
        "`listeners`, with this machine's name if that is every interface. An empty host also "
        "means this machine's name.",
    )
    listener_security_protocol_map: String = setting(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        check=parse_protocol_map,
        doc="Security protocol of each listener name, as NAME:PROTOCOL pairs: PLAINTEXT, SSL, "
        "SASL_PLAINTEXT or SASL_SSL.",
    )
    controller_listener_names: List = setting(
        (),
        doc="Listeners in this broker's file that are for a controller. There is no "
        "controller here, so they are not opened.",
    )
    socket_send_buffer_bytes: Int = setting(
        102_400,
        doc="SO_SNDBUF of client sockets; a negative value leaves it to the operating system.",
    )
    socket_receive_buffer_bytes: Int = setting(
        -1,
        doc="SO_RCVBUF of client sockets; a negative value leaves it to the operating system, "
        "which enlarges the buffers of busy connections. With Kafka's default, 102400, a "
        "batch of 1 MB takes eight reads.",
    )
    socket_request_max_bytes: Int = setting(
        104_857_600,
        at_least=1,
        doc="Largest request. A connection that announces a larger one is closed.",
    )
    queued_max_request_bytes: Long = setting(
        268_435_456,
        doc="Bytes of all requests that are being received or waiting. Beyond this limit, "
        "only one connection at a time receives a large request; small requests are not "
        "delayed, and the slowest uploads are closed if others wait for memory. -1, "
        "Kafka's default, means no limit.",
    )
    socket_listen_backlog_size: Int = setting(
        1024,
        at_least=1,
        doc="Connections that may wait to be accepted. With Kafka's default of 50, many "
        "clients that start together lose a second to dropped SYNs.",
    )
    max_connections: Int = setting(
        INT_MAX,
        at_least=0,
        dynamic=True,
        doc="Connections open at a time; more are closed at once.",
    )
    max_connections_per_ip: Int = setting(
        INT_MAX,
        at_least=0,
        dynamic=True,
        doc="Connections open at a time from one address; more are closed at once.",
    )
    max_connections_per_ip_overrides: String = setting(
        "",
        check=parse_ip_overrides,
        dynamic=True,
        doc="Limits for individual addresses that replace `max.connections.per.ip`, as "
        "host:count pairs. A name is looked up once, at the start or when it is set.",
    )
    max_connection_creation_rate: Int = setting(
        INT_MAX,
        at_least=0,
        dynamic=True,
        doc="New connections per second, averaged like quotas. Beyond this rate, "
        "connections wait to be accepted. The prefix `listener.name.<name>.` sets a "
        "further limit for that listener.",
    )
    connections_max_idle_ms: Long = setting(
        600_000,
        doc="A connection without a request for this time is closed; negative values turn "
        "this off.",
    )
    fetch_max_bytes: Int = setting(
        57_671_680,
        at_least=1024,
        doc="Largest response to a fetch, whatever the client allows. One batch is always "
        "sent whole.",
    )
