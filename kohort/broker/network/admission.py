"""Connection limits: in total, per listener and per IP address."""

from kohort.broker.network.limits import UNLIMITED, NetworkLimits


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
