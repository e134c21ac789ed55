"""The configured limits on connections, at the start and after each change of the settings.

Hosts in ``max.connections.per.ip.overrides`` may be names. Each name is resolved once: at the
start, or on another thread if it is set later.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from ipaddress import ip_address

from kohort.broker.config.current import CurrentConfig
from kohort.broker.config.network import parse_ip_overrides
from kohort.broker.network.connection.limits import NetworkLimits

logger = logging.getLogger(__name__)


class OverrideHostError(Exception):
    """A host in ``max.connections.per.ip.overrides`` cannot be resolved; the text contains it."""


class ConnectionLimits:
    """Computes the limits from the settings, at the start and after each change of a setting."""

    def __init__(self, settings: CurrentConfig, connections_max: int) -> None:
        """Resolve the hosts, which blocks. The process can have `connections_max` connections.

        Raises:
            OverrideHostError: a host cannot be resolved.
        """
        self._settings = settings
        self._connections_max = connections_max
        self._addresses: dict[str, frozenset[str]] = {}
        self._apply: Callable[[NetworkLimits], None]
        for host in self._unknown_hosts():
            self._addresses[host] = addresses_of(host)

    def now(self) -> NetworkLimits:
        """Return the current limits, without those of hosts that are not resolved yet."""
        config, of_listener = self._settings.config, self._settings.of_listener
        return NetworkLimits(
            socket_request_max_bytes=config.socket_request_max_bytes,
            queued_max_request_bytes=config.queued_max_request_bytes,
            kohort_unsent_max_bytes=config.kohort_unsent_max_bytes,
            socket_listen_backlog_size=config.socket_listen_backlog_size,
            max_connections=min(config.max_connections, self._connections_max),
            max_connections_of_listeners={
                endpoint.listener: of_listener(endpoint.listener).max_connections
                for endpoint in config.listener_endpoints
            },
            max_connections_per_ip=config.max_connections_per_ip,
            max_connections_per_ip_overrides={
                address: limit
                for host, limit in self._overrides().items()
                for address in self._addresses.get(host, ())
            },
            max_connection_creation_rate=config.max_connection_creation_rate,
            max_connection_creation_rates={
                endpoint.listener: of_listener(endpoint.listener).max_connection_creation_rate
                for endpoint in config.listener_endpoints
            },
            quota_window_num=config.quota_window_num,
            quota_window_ms=config.quota_window_size_seconds * 1_000,
            connections_max_idle_ms=config.connections_max_idle_ms,
            kohort_frame_timeout_ms=config.kohort_frame_timeout_ms,
            kohort_authentication_timeout_ms=config.kohort_authentication_timeout_ms,
            kohort_unauthenticated_connections_max=config.kohort_unauthenticated_connections_max,
        )

    def follow(self, apply: Callable[[NetworkLimits], None]) -> None:
        """Call `apply` on the loop with the new limits if settings change or a host is resolved."""
        self._apply = apply
        self._settings.on_change(self._on_change)

    def _on_change(self) -> None:
        for host in self._unknown_hosts():
            # Only a name needs a thread: resolving it may take long.
            if _is_address(host):
                self._addresses[host] = addresses_of(host)
            else:
                self._resolve_in_thread(host)
        self._apply(self.now())

    def _resolve_in_thread(self, host: str) -> None:
        self._addresses[host] = frozenset()
        resolution = asyncio.get_running_loop().run_in_executor(None, addresses_of, host)

        def finish(done: asyncio.Future[frozenset[str]]) -> None:
            if done.cancelled():
                return
            error = done.exception()
            if error is not None:
                # Removed, so that the next change of the settings resolves the host again.
                del self._addresses[host]
                logger.error("%s; its override is ignored until the settings change again", error)
                return
            self._addresses[host] = done.result()
            self._apply(self.now())

        resolution.add_done_callback(finish)

    def _overrides(self) -> Mapping[str, int]:
        return parse_ip_overrides(self._settings.config.max_connections_per_ip_overrides)

    def _unknown_hosts(self) -> list[str]:
        return [host for host in self._overrides() if host not in self._addresses]


def addresses_of(host: str) -> frozenset[str]:
    """Return all numeric addresses of a host; blocks if it is a name. Raises OverrideHostError."""
    if _is_address(host):
        return frozenset({str(ip_address(host))})
    try:
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise OverrideHostError(
            f"max.connections.per.ip.overrides: the host {host!r} cannot be resolved ({error})"
        ) from None
    return frozenset(str(address[0]) for *_, address in addresses)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
