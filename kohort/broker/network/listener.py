"""One of the broker's listeners, as its connections see it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from kohort.broker.network.service import NewConnection, Service
from kohort.broker.network.tls import TlsPump


class TlsSide(Protocol):
    """The TLS configuration of one listener."""

    context: ssl.SSLContext
    """The context for new connections; replaced as a whole when certificates are renewed."""

    def established(self, connection: NewConnection, pump: TlsPump) -> None:
        """Create the session from the client's certificate. Raises TlsError to refuse it."""
        ...


@dataclass(slots=True, eq=False)
class Listener:
    """The configuration shared by a listener's connections."""

    name: str
    """The listener's name in `listeners`, in upper case."""
    tls: TlsSide | None = None
    new_service: Callable[[NewConnection], Service] | None = None
    """Creates the service of a connection until it is authenticated; None: no authentication."""
    first_frame_max_bytes: int | None = None
    """Largest frame before authentication; None: the normal limit."""

    @property
    def lets_in_later(self) -> bool:
        """Whether clients must complete TLS or authenticate before requests are served."""
        return self.tls is not None or self.new_service is not None
