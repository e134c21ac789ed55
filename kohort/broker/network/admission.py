"""Admission of connections: the limits on open connections, in all and from one address."""

from kohort.broker.network.limits import NetworkLimits


class Admission:
    """Counts the open connections."""

    __slots__ = ("_per_ip", "count", "limits")

    def __init__(self, limits: NetworkLimits) -> None:
        self.limits = limits
        self._per_ip: dict[str, int] = {}
        self.count = 0

    def admit(self, ip: str) -> str | None:
        """Count a connection from `ip`; or return the name of the config that forbids it."""
        limits = self.limits
        if self.count >= limits.max_connections:
            return "max.connections"
        from_ip = self._per_ip.get(ip, 0)
        override = limits.max_connections_per_ip_overrides.get(ip)
        if override is not None and from_ip >= override:
            return "max.connections.per.ip.overrides"
        if override is None and from_ip >= limits.max_connections_per_ip:
            return "max.connections.per.ip"
        self.count += 1
        self._per_ip[ip] = from_ip + 1
        return None

    def release(self, ip: str) -> None:
        """A connection that was admitted is gone."""
        self.count -= 1
        left = self._per_ip[ip] - 1
        if left:
            self._per_ip[ip] = left
        else:
            del self._per_ip[ip]
