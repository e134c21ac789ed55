"""Limits on connections: their number, and the rate of new ones (KIP-612).

If a listener, or all together, exceed their rate, no connection is accepted for a while; a
connection from an IP address that exceeds its rate is not served. Neither lasts longer than one
window.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kohort.broker.core.recently_used import RecentlyUsed
from kohort.broker.core.security.rate import Rate
from kohort.broker.network.connection.limits import UNLIMITED, NetworkLimits

ADDRESSES_MAX: Final = 100_000
"""How many addresses are tracked; beyond that the least recent one is dropped."""


class Admission:
    """Counts the open connections."""

    __slots__ = ("_of_listener", "_per_ip", "count", "limits")

    def __init__(self, limits: NetworkLimits) -> None:
        self.limits = limits
        self._per_ip: dict[str, int] = {}
        self._of_listener: dict[str, int] = {}
        self.count = 0

    def admit(self, ip: str, listener: str) -> str | None:
        """Count a connection from `ip` at `listener`; return None, or the name of the config that
        forbids it.
        """
        limits = self.limits
        if self.count >= limits.max_connections:
            return "max.connections"
        of_listener = self._of_listener.get(listener, 0)
        if of_listener >= limits.max_connections_of_listeners.get(listener, UNLIMITED):
            return f"listener.name.{listener.lower()}.max.connections"
        from_ip = self._per_ip.get(ip, 0)
        override = limits.max_connections_per_ip_overrides.get(ip)
        if override is not None and from_ip >= override:
            return "max.connections.per.ip.overrides"
        if override is None and from_ip >= limits.max_connections_per_ip:
            return "max.connections.per.ip"
        self.count += 1
        self._per_ip[ip] = from_ip + 1
        self._of_listener[listener] = of_listener + 1
        return None

    def release(self, ip: str, listener: str) -> None:
        """Record that an admitted connection has closed."""
        self.count -= 1
        self._of_listener[listener] -= 1
        left = self._per_ip[ip] - 1
        if left:
            self._per_ip[ip] = left
        else:
            del self._per_ip[ip]


class ConnectionRates:
    """The recent connection rates. Times are monotonic milliseconds."""

    def __init__(self, limits: NetworkLimits, limit_of_ip: Callable[[str], float | None]) -> None:
        """`limit_of_ip` returns connections per second, None for an address without a limit."""
        self.limits = limits
        self._limit_of_ip = limit_of_ip
        self._all = self._new()
        self._by_listener: dict[str, Rate] = {}
        self._by_ip: RecentlyUsed[str, Rate] = RecentlyUsed(self._new, ADDRESSES_MAX)

    def of_listener(self, listener: str, now_ms: int) -> int:
        """Count a connection; return for how many milliseconds the listener must not accept
        another.
        """
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
        """Count a connection of an address; return after how many milliseconds to close it, 0 if it
        is to be served. Connections that are not served do not count.
        """
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
