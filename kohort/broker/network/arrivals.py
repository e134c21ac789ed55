"""Connections that are not authenticated yet: limited in number and in time.

Pure bookkeeping; the server closes connections. They are counted by owner of addresses, not by
address: a host with one IPv6 address can use 2**64.
"""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from kohort.broker.core.security.addresses import owner_of


class Arrival(Protocol):
    """A connection."""

    @property
    def ip(self) -> str: ...


A = TypeVar("A", bound=Arrival)


class Arrivals(Generic[A]):
    """Connections whose TLS handshake or SASL authentication is not complete."""

    __slots__ = ("_by_owner", "_since_ms")

    def __init__(self) -> None:
        self._since_ms: dict[A, int] = {}
        self._by_owner: dict[str, dict[A, None]] = {}

    def __len__(self) -> int:
        return len(self._since_ms)

    def add(self, arrival: A, now_ms: int, count_max: int) -> A | None:
        """Add a connection; return the one to close if there are too many: the oldest of the
        owner that has the most.
        """
        self._since_ms[arrival] = now_ms
        self._by_owner.setdefault(owner_of(arrival.ip), {})[arrival] = None
        if len(self._since_ms) <= count_max:
            return None
        most = max(self._by_owner.values(), key=len)
        return next(iter(most))

    def remove(self, arrival: A) -> None:
        """Remove a connection that was authenticated or has closed; others are ignored."""
        if self._since_ms.pop(arrival, None) is None:
            return
        owner = owner_of(arrival.ip)
        of_owner = self._by_owner[owner]
        del of_owner[arrival]
        if not of_owner:
            del self._by_owner[owner]

    def overdue(self, now_ms: int, timeout_ms: int) -> Iterator[A]:
        """Yield connections that have taken too long, oldest first;
        not to be modified meanwhile.
        """
        for arrival, since_ms in self._since_ms.items():
            if now_ms - since_ms < timeout_ms:
                return
            yield arrival
