"""Connections that are not let in yet: bounded in number, and in the time that they may take.

Pure bookkeeping; ending a connection is for the server.
"""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Arrival(Protocol):
    """A connection."""

    @property
    def ip(self) -> str: ...


A = TypeVar("A", bound=Arrival)


class Arrivals(Generic[A]):
    """Connections on which TLS and SASL have not come to their end."""

    __slots__ = ("_by_ip", "_since_ms")

    def __init__(self) -> None:
        self._since_ms: dict[A, int] = {}
        self._by_ip: dict[str, dict[A, None]] = {}

    def __len__(self) -> int:
        return len(self._since_ms)

    def add(self, arrival: A, now_ms: int, count_max: int) -> A | None:
        """Note one more; returns the one that has to make room: the oldest of the address that has
        most.
        """
        self._since_ms[arrival] = now_ms
        self._by_ip.setdefault(arrival.ip, {})[arrival] = None
        if len(self._since_ms) <= count_max:
            return None
        most = max(self._by_ip.values(), key=len)
        return next(iter(most))

    def remove(self, arrival: A) -> None:
        """Note that it is let in, or gone; of no effect for others."""
        if self._since_ms.pop(arrival, None) is None:
            return
        of_ip = self._by_ip[arrival.ip]
        del of_ip[arrival]
        if not of_ip:
            del self._by_ip[arrival.ip]

    def overdue(self, now_ms: int, timeout_ms: int) -> Iterator[A]:
        """Connections that have taken too long, the oldest first; not to be changed meanwhile."""
        for arrival, since_ms in self._since_ms.items():
            if now_ms - since_ms < timeout_ms:
                return
            yield arrival
