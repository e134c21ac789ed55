"""The client of a transaction; `RequestContext` imports this, but not the transaction rules."""

from typing import NamedTuple


class Client(NamedTuple):
    """The sender of a request, for display only; not used by any rule."""

    client_id: str
    host: str
    """The address as Kafka shows it: "/127.0.0.1"."""
