"""Limits on the number of connections, on the rate of new ones (KIP-612), and on unauthenticated
ones.

If a listener, or all listeners together, exceed their rate, accepting is paused. If an IP address
exceeds its rate, its new connections are refused and closed after a delay. The pause and the delay
last for one quota window at most.
"""

from collections.abc import Callable, Iterator
from typing import Final, Generic, Protocol, TypeVar

from kohort.broker.core.recently_used import RecentlyUsed
from kohort.broker.core.security.account import Rate
from kohort.broker.network.connection.limits import UNLIMITED, NetworkLimits

ADDRESSES_MAX: Final = 100_000
"""Maximum number of IP addresses with a tracked rate; the least recently used is dropped."""


class Admission:
    __slots__ = ("_of_listener", "_per_ip", "count", "limits")

    def __init__(self, limits: NetworkLimits) -> None:
        self.limits = limits
        self._per_ip: dict[str, int] = {}
        self._of_listener: dict[str, int] = {}
        self.count = 0

    def admit(self, ip: str, listener: str) -> str | None:
        """Count a connection and return None, or return the name of the config that forbids it."""
        limits = self.limits
        if self.count >= limits.max_connections:
            return "max.connections"
        listener_count = self._of_listener.get(listener, 0)
        if listener_count >= limits.max_connections_of_listeners.get(listener, UNLIMITED):
            return f"listener.name.{listener.lower()}.max.connections"
        ip_count = self._per_ip.get(ip, 0)
        override = limits.max_connections_per_ip_overrides.get(ip)
        if override is not None and ip_count >= override:
            return "max.connections.per.ip.overrides"
        if override is None and ip_count >= limits.max_connections_per_ip:
            return "max.connections.per.ip"
        self.count += 1
        self._per_ip[ip] = ip_count + 1
        self._of_listener[listener] = listener_count + 1
        return None

    def release(self, ip: str, listener: str) -> None:
        """Stop counting an admitted connection, which has ended."""
        self.count -= 1
        self._of_listener[listener] -= 1
        left = self._per_ip[ip] - 1
        if left:
            self._per_ip[ip] = left
        else:
            del self._per_ip[ip]


class ConnectionRates:
    """Recent rates of new connections. Times are monotonic milliseconds."""

    def __init__(self, limits: NetworkLimits, limit_of_ip: Callable[[str], float | None]) -> None:
        """`limit_of_ip` returns the limit in connections per second, or None."""
        self.limits = limits
        self._limit_of_ip = limit_of_ip
        self._all = self._new()
        self._by_listener: dict[str, Rate] = {}
        self._by_ip: RecentlyUsed[str, Rate] = RecentlyUsed(self._new, ADDRESSES_MAX)

    def of_listener(self, listener: str, now_ms: int) -> int:
        """Count a new connection to a listener; return the ms for which to pause accepting."""
        limits = self.limits
        own_limit = limits.max_connection_creation_rates.get(listener, UNLIMITED)
        if own_limit == limits.max_connection_creation_rate == UNLIMITED:
            return 0
        own = self._by_listener.get(listener)
        if own is None:
            own = self._by_listener[listener] = self._new()
        return max(
            self._count(own, own_limit, now_ms),
            self._count(self._all, limits.max_connection_creation_rate, now_ms),
        )

    def of_ip(self, ip: str, now_ms: int) -> int:
        """Count an address's new connection; return the ms until it is closed, 0 to serve it."""
        limit = self._limit_of_ip(ip)
        if limit is None:
            return 0
        rate = self._by_ip[ip]
        throttle_ms = self._count(rate, limit, now_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return throttle_ms

    def _count(self, rate: Rate, limit: float, now_ms: int) -> int:
        rate.record(1, now_ms)
        if not limit:
            return self.limits.quota_window_ms
        return min(rate.throttle_ms(limit, now_ms), self.limits.quota_window_ms)

    def _new(self) -> Rate:
        return Rate(self.limits.quota_window_num, self.limits.quota_window_ms)


class Unauthenticated(Protocol):
    @property
    def address_block(self) -> str: ...


A = TypeVar("A", bound=Unauthenticated)


class UnauthenticatedConnections(Generic[A]):
    """Connections whose TLS handshake or SASL authentication is not complete."""

    __slots__ = ("_blocks_by_count", "_by_block", "_most", "_since_ms")

    def __init__(self) -> None:
        self._since_ms: dict[A, int] = {}
        self._by_block: dict[str, dict[A, None]] = {}
        # Blocks by their number of connections, because in an attack every new connection looks up
        # the block with the most.
        self._blocks_by_count: dict[int, dict[str, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._since_ms)

    def add(self, connection: A, now_ms: int, count_max: int) -> A | None:
        """Add a connection. If there are now more than `count_max`, return the one to close: the
        oldest of the address block with the most connections.
        """
        self._since_ms[connection] = now_ms
        block = connection.address_block
        block_connections = self._by_block.setdefault(block, {})
        block_connections[connection] = None
        self._recount(block, len(block_connections) - 1, len(block_connections))
        if len(self._since_ms) <= count_max:
            return None
        most = next(iter(self._blocks_by_count[self._most]))
        return next(iter(self._by_block[most]))

    def remove(self, connection: A) -> None:
        """Remove a connection that is authenticated or closed; do nothing if it was not added."""
        if self._since_ms.pop(connection, None) is None:
            return
        block = connection.address_block
        block_connections = self._by_block[block]
        del block_connections[connection]
        self._recount(block, len(block_connections) + 1, len(block_connections))
        if not block_connections:
            del self._by_block[block]

    def overdue(self, now_ms: int, timeout_ms: int) -> Iterator[A]:
        """Yield overdue connections, oldest first. Do not add or remove any while iterating."""
        for connection, since_ms in self._since_ms.items():
            if now_ms - since_ms < timeout_ms:
                return
            yield connection

    def _recount(self, block: str, before: int, after: int) -> None:
        if before:
            blocks = self._blocks_by_count[before]
            del blocks[block]
            if not blocks:
                del self._blocks_by_count[before]
        if after:
            self._blocks_by_count.setdefault(after, {})[block] = None
        if after > self._most or self._most not in self._blocks_by_count:
            self._most = after
