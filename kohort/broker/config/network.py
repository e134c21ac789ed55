"""Settings of the network: listeners, sockets, connections."""

from kohort.broker.config.endpoints import (
    advertised_problem,
    endpoints_problem,
    ip_overrides_problem,
    protocol_map_problem,
)
from kohort.broker.config.settings import INT_MAX, Int, List, Long, Settings, String, setting


class NetworkSettings(Settings):
    """Network."""

    listeners: List = setting(
        ("PLAINTEXT://localhost:9092",),
        check=endpoints_problem,
        doc="Addresses to accept connections at, as NAME://host:port. An empty host means "
        "every interface, port 0 any free port. Kafka's default is every interface. The default "
        "here is this machine only, because PLAINTEXT does not authenticate clients.",
    )
    advertised_listeners: List | None = setting(
        None,
        check=advertised_problem,
        doc="Addresses to which clients connect, by listener name. Unset: the address of "
        "`listeners`, with this machine's name if that is every interface. An empty host also "
        "means this machine's name.",
    )
    listener_security_protocol_map: String = setting(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        check=protocol_map_problem,
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
        check=ip_overrides_problem,
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
