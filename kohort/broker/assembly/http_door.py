"""The way into the broker's HTTP ports: what certificate they show, and whom they let see what.

They are open before the logs are; who asks can be found out once the users are there, and before
that there is nothing to see but whether the broker is ready.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator, Mapping
from functools import partial

from kohort.broker.config import BrokerConfig, ConfigError, LoadedConfig
from kohort.broker.config.current import CurrentConfig
from kohort.broker.config.listeners import HTTP, of_listener, uses_tls_for_http
from kohort.broker.core.security.addresses import is_loopback
from kohort.broker.dispatch.access import HTTP_API, Access
from kohort.broker.http.messages import AnyPage, HttpRequest, Visitor
from kohort.broker.http.server import HttpServer
from kohort.broker.http.visitors import OPERATOR, StrangerError
from kohort.broker.security.http_guard import HttpGuard, HttpVisitor
from kohort.broker.security.listeners import SecureListeners
from kohort.broker.security.tls_listener import TlsListener

logger = logging.getLogger(__name__)


class HttpDoor:
    """One for both ports."""

    def __init__(self, loaded: LoadedConfig) -> None:
        """Reads the stores of the certificate, if there is one. Raises ConfigError, StoreError."""
        self._loaded = loaded
        self._settings: CurrentConfig | None = None
        self._servers: list[HttpServer] = []
        _check(loaded)
        self.tls: TlsListener | None = None
        if list(_hosts(loaded.config)) and uses_tls_for_http(loaded.own):
            self.tls = TlsListener(HTTP, self._of_listener, authenticates=False)

    def new_server(self, pages: Mapping[str, AnyPage]) -> HttpServer:
        """A server for one of the ports, not started."""
        server = HttpServer(
            pages,
            hosts=self._names(),
            tls=None if self.tls is None else _renewing(self.tls),
        )
        self._servers.append(server)
        return server

    def ask_visitors(self, listeners: SecureListeners, access: Access | None) -> None:
        """Ask visitors who they are from now on, if the settings say so. Reads files.

        Raises StoreError.
        """
        self._settings = listeners.settings
        config = self._loaded.config
        ways = config.kohort_http_authentication
        hosts = list(_hosts(config))
        if not hosts or ways == ("none",):
            return
        if self.tls is None and not all(map(is_loopback, hosts)):
            logger.warning("An HTTP port takes passwords or tokens that pass without TLS")
        guard = partial(_visitor, listeners.http_guard(ways), access)
        for server in self._servers:
            server.guard_by(guard, ways)

    def _names(self) -> set[str]:
        """Names of this machine in a Host header, beyond names that no one can register."""
        config = self._loaded.config
        return {
            config.kohort_metrics_host,
            config.kohort_console_host,
            socket.gethostname(),
            *config.kohort_http_hosts,
        }

    def _of_listener(self) -> BrokerConfig:
        if self._settings is not None:
            return self._settings.of_listener(HTTP)
        return of_listener(self._loaded.config, self._loaded.own, HTTP)


def _hosts(config: BrokerConfig) -> Iterator[str]:
    """Where the ports are that are open."""
    if config.kohort_metrics_port >= 0:
        yield config.kohort_metrics_host
    if config.kohort_console_port >= 0:
        yield config.kohort_console_host


async def _visitor(guard: HttpGuard, access: Access | None, request: HttpRequest) -> Visitor:
    """The sender of a request. Raises StrangerError."""
    session = await guard.admit(request.authorization, request.ip)
    if session is None:
        raise StrangerError
    if access is None:
        return OPERATOR
    return HttpVisitor(
        session, lambda asks, *asked: access.may(asks, HTTP_API, *asked), access.sees
    )


def _check(loaded: LoadedConfig) -> None:
    """Raise ConfigError where clients need rights and who comes by these ports needs none."""
    config = loaded.config
    if not config.authorizer_class_name or "kohort.http.authentication" in loaded.given:
        return
    reached = [host for host in _hosts(config) if not is_loopback(host)]
    if reached:
        text = (
            "authorizer.class.name is set, and an HTTP port shows all groups and topics to "
            f"everybody who reaches {reached[0] or 'this machine'}: set kohort.http.authentication "
            "to basic or bearer, or to none if that is meant"
        )
        raise ConfigError([text])


def _renewing(tls: TlsListener) -> ssl.SSLContext:
    """A context whose connections begin with the certificate that there is then."""
    context = tls.context

    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        del name
        connection.context = tls.context

    context.sni_callback = choose
    return context
