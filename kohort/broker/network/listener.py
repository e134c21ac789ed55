"""One of the broker's listeners, as the connections that come by it know it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kohort.broker.network.service import Service
from kohort.broker.network.tls import TlsPump

if TYPE_CHECKING:
    from kohort.broker.network.connection import Connection


class TlsSide(Protocol):
    """TLS of one listener."""

    context: ssl.SSLContext
    """What new connections begin with; replaced as a whole when certificates are renewed."""

    def established(self, connection: Connection, pump: TlsPump) -> None:
        """Make what follows from the client's certificate. Raises TlsError to refuse it."""
        ...


@dataclass(slots=True, eq=False)
class Listener:
    """What its connections have in common."""

    name: str
    """Its name in `listeners`, in upper case."""
    tls: TlsSide | None = None
    new_service: Callable[[Connection], Service] | None = None
    """What serves a connection until it is let in; None: the service of all serves at once."""
    first_frame_max_bytes: int = 0
    """Largest frame until then; 0: as later."""

    @property
    def lets_in_later(self) -> bool:
        """Whether its clients have something to show before they are let in."""
        return self.tls is not None or self.new_service is not None
