"""The configuration of a listener, shared by its connections."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kohort.broker.network.service import NewConnection, Service, TlsPeer


class ListenerTls(Protocol):
    """The TLS configuration of one listener."""

    context: ssl.SSLContext
    """The context for new connections; replaced as a whole when certificates are renewed."""

    def established(self, connection: NewConnection, peer: TlsPeer) -> None:
        """Create the session from the client's certificate. Raises TlsError to reject it."""
        ...


@dataclass(slots=True, eq=False)
class Listener:
    """The configuration shared by a listener's connections."""

    name: str
    """The listener's name in `listeners`, in upper case."""
    tls: ListenerTls | None = None
    """TLS of the listener; None for plain text."""
    new_service: Callable[[NewConnection], Service] | None = None
    """Creates the service that authenticates a new connection; None without SASL."""
    first_frame_max_bytes: int | None = None
    """Largest frame before authentication; None: the normal limit."""

    @property
    def requires_authentication(self) -> bool:
        """Whether clients must complete TLS or SASL before their requests are served."""
        return self.tls is not None or self.new_service is not None
