"""Principals and sessions: the identity of a connection's client, and when the session expires.

A session is created when a connection is authenticated. Reauthentication (KIP-368) replaces the
whole session, but cannot change the principal.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from kohort.broker.core.security.acls import Operation, ResourceType

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""

USER: Final = "User"
"""The only principal type that Kafka's own authorizer supports."""


class Principal(NamedTuple):
    """The identity of a client, as ACLs name it. Type and name are case-sensitive."""

    type: str
    name: str

    def __str__(self) -> str:
        """The text of the principal in ACLs and `super.users`: ``User:alice``."""
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
"""The principal of a client without an identity: on PLAINTEXT, or TLS without a certificate."""


class Session(NamedTuple):
    """The authenticated state of one connection."""

    principal: Principal
    host: str
    """The numeric address of the client as `host_text` writes it; ACLs compare it as text."""
    listener: str
    """The name of the listener that the client connected to, in upper case."""
    mechanism: str = ""
    """The SASL mechanism; empty without SASL."""
    expires_ms: int | None = None
    """Monotonic time from which any request but a reauthentication closes the connection; None for
    never.
    """


UNKNOWN: Final = Session(ANONYMOUS, "", "PLAINTEXT")
"""The session of a connection before authentication."""

Right: TypeAlias = "tuple[Operation, ResourceType]"
"""Cache key: operation and resource type."""

Granted = Mapping[Right, frozenset[str] | set[str]]
"""The names of resources for which a right is known to be granted."""

NOTHING_GRANTED: Final[Granted] = MappingProxyType({})
