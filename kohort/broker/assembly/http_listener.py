"""TLS and authentication of the broker's HTTP ports.

The ports are opened before the logs. Requests can be authenticated only after the users are loaded;
until then, the ports serve only the health checks.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from kohort.broker.config import BrokerConfig, ConfigError, LoadedConfig
from kohort.broker.config.current import CurrentConfig
from kohort.broker.config.listeners import HTTP, of_listener, uses_tls_for_http
from kohort.broker.core.security.addresses import is_loopback
from kohort.broker.http.messages import AnyPage, HttpRequest, HttpRequester
from kohort.broker.http.requesters import OPERATOR, UnauthenticatedError
from kohort.broker.http.server import AbsentPage, HttpServer
from kohort.broker.security.listeners import SecureListeners

# Imported by the first port that uses TLS or authentication.
if TYPE_CHECKING:
    from kohort.broker.dispatch.access import Access
    from kohort.broker.security.http_guard import HttpGuard
    from kohort.broker.security.tls_listener import TlsListener

logger = logging.getLogger(__name__)


class HttpListener:
    """TLS and authentication for both HTTP ports."""

    def __init__(self, loaded: LoadedConfig) -> None:
        """Load the key store and the trust store, if configured. Raises ConfigError, StoreError."""
        self._loaded = loaded
        self._settings: CurrentConfig | None = None
        self._servers: list[HttpServer] = []
        _check(loaded)
        self.tls: TlsListener | None = None
        if list(_hosts(loaded.config)) and uses_tls_for_http(loaded.own):
            from kohort.broker.security.tls_listener import TlsListener  # noqa: PLC0415

            self.tls = TlsListener(HTTP, self._of_listener, authenticates=False)

    def new_server(self, pages: Mapping[str, AnyPage], absent: AbsentPage) -> HttpServer:
        """Create, but do not start, a server for one of the HTTP ports."""
        server = HttpServer(
            pages,
            absent=absent,
            hosts=self._names(),
            tls=None if self.tls is None else _renewing(self.tls),
        )
        self._servers.append(server)
        return server

    def authenticate_requests(self, listeners: SecureListeners, access: Access | None) -> None:
        """Authenticate all further requests, if configured. May read files. Raises StoreError."""
        self._settings = listeners.settings
        config = self._loaded.config
        ways = config.kohort_http_authentication
        hosts = list(_hosts(config))
        if ways == ("none",):
            for host in {*hosts} - {*filter(is_loopback, hosts)}:
                where = host or "every interface"
                logger.warning("The HTTP port on %s does not authenticate requests", where)
            return
        if not hosts:
            return
        if self.tls is None and not all(map(is_loopback, hosts)):
            logger.warning("An HTTP port accepts passwords or tokens without TLS")
        guard = partial(_requester, listeners.http_guard(ways), access)
        for server in self._servers:
            server.guard_by(guard, ways)

    def _names(self) -> set[str]:
        """Return names to accept in a Host header, besides those that are always accepted."""
        config = self._loaded.config
        return {
            config.kohort_metrics_host,
            config.kohort_console_host,
            socket.gethostname(),
            *(endpoint.host for endpoint in config.advertised_endpoints),
            *config.kohort_http_hosts,
        }

    def _of_listener(self) -> BrokerConfig:
        if self._settings is not None:
            return self._settings.of_listener(HTTP)
        return of_listener(self._loaded.config, self._loaded.own, HTTP)


def _hosts(config: BrokerConfig) -> Iterator[str]:
    """Yield the hosts of the ports that are not turned off."""
    if config.kohort_metrics_port >= 0:
        yield config.kohort_metrics_host
    if config.kohort_console_port >= 0:
        yield config.kohort_console_host


async def _requester(
    guard: HttpGuard, access: Access | None, request: HttpRequest
) -> HttpRequester:
    """Authenticate the sender of a request. Raises UnauthenticatedError."""
    session = await guard.admit(request.authorization, request.ip)
    if session is None:
        raise UnauthenticatedError
    if access is None:
        return OPERATOR
    from kohort.broker.dispatch.access import HTTP_API  # noqa: PLC0415
    from kohort.broker.security.http_guard import AuthenticatedRequester  # noqa: PLC0415

    return AuthenticatedRequester(
        session, lambda session, *resource: access.may(session, HTTP_API, *resource), access.sees
    )


def _check(loaded: LoadedConfig) -> None:
    """Raise ConfigError if an authorizer is set, but kohort.http.authentication is not, and other
    machines can reach an HTTP port.
    """
    config = loaded.config
    if not config.authorizer_class_name or "kohort.http.authentication" in loaded.given:
        return
    reached = [host for host in _hosts(config) if not is_loopback(host)]
    if reached:
        text = (
            "authorizer.class.name is set, but an HTTP port shows all groups and topics to "
            f"everyone who can connect to {reached[0] or 'this machine'}: set "
            "kohort.http.authentication to basic or bearer, or to none if this is intended"
        )
        raise ConfigError([text])


def _renewing(tls: TlsListener) -> ssl.SSLContext:
    """Return a context whose connections use the current certificate, also after a reload."""
    context = tls.context

    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        del name
        connection.context = tls.context

    context.sni_callback = choose
    return context
