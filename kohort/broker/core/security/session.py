"""Principals and sessions: who speaks on a connection, and for how long.

A session is made when a connection has been let in, and replaced as a whole when the client
authenticates again (KIP-368), which cannot change the principal.
"""

from typing import Final, NamedTuple

USER: Final = "User"
"""The one type of principals that Kafka's own authorizer knows."""


class Principal(NamedTuple):
    """Somebody who may be allowed something. Equal only if type and name are, letter by letter."""

    type: str
    name: str

    def __str__(self) -> str:
        """Its text as in rules and in `super.users`: ``User:alice``."""
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The client that has not said who it is: on PLAINTEXT, and with TLS but without a certificate."""


class Session(NamedTuple):
    """One connection's right to be here."""

    principal: Principal
    host: str
    """Numeric address of the client, without a slash; rules compare it as text."""
    listener: str
    """Name of the listener that it came by, in upper case."""
    mechanism: str = ""
    """The SASL mechanism; empty where there was none."""
    expires_ms: int | None = None
    """Monotonic time from which on it must authenticate again before anything else; None: never."""


UNKNOWN: Final = Session(ANONYMOUS, "", "PLAINTEXT")
"""Session of a connection of which nothing is known yet."""
