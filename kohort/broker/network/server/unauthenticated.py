"""Connections that are not authenticated yet: limited in number and in time.

Pure bookkeeping; the server closes connections. They are counted by owner of addresses, not by
address: a host with one IPv6 address can use 2**64.
"""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Arrival(Protocol):
    """A connection."""

    @property
    def owner(self) -> str:
        """Owner of the address of its client."""
        ...


A = TypeVar("A", bound=Arrival)


class Arrivals(Generic[A]):
    """Connections whose TLS handshake or SASL authentication is not complete."""

    __slots__ = ("_by_owner", "_most", "_owners_by_count", "_since_ms")

    def __init__(self) -> None:
        self._since_ms: dict[A, int] = {}
        self._by_owner: dict[str, dict[A, None]] = {}
        # By number of connections, so that the owner with the most is found without a look at all
        # of them: in an attack this is done for each new connection.
        self._owners_by_count: dict[int, dict[str, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._since_ms)

    def add(self, arrival: A, now_ms: int, count_max: int) -> A | None:
        """Add a connection; return the one to close if there are too many: the oldest of the
        owner that has the most.
        """
        self._since_ms[arrival] = now_ms
        owner = arrival.owner
        of_owner = self._by_owner.setdefault(owner, {})
        of_owner[arrival] = None
        self._recount(owner, len(of_owner) - 1, len(of_owner))
        if len(self._since_ms) <= count_max:
            return None
        most = next(iter(self._owners_by_count[self._most]))
        return next(iter(self._by_owner[most]))

    def remove(self, arrival: A) -> None:
        """Remove a connection that was authenticated or has closed; others are ignored."""
        if self._since_ms.pop(arrival, None) is None:
            return
        owner = arrival.owner
        of_owner = self._by_owner[owner]
        del of_owner[arrival]
        self._recount(owner, len(of_owner) + 1, len(of_owner))
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

    def _recount(self, owner: str, before: int, after: int) -> None:
        """Note that an owner has one connection more or less than before."""
        if before:
            owners = self._owners_by_count[before]
            del owners[owner]
            if not owners:
                del self._owners_by_count[before]
        if after:
            self._owners_by_count.setdefault(after, {})[owner] = None
        if after > self._most or self._most not in self._owners_by_count:
            self._most = after
