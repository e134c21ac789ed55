"""The broker's listeners, and the authentication that each requires by the current settings."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from kohort.broker.config import BrokerConfig
from kohort.broker.config.current import BROKER_SETTINGS, CurrentConfig
from kohort.broker.config.listeners import HTTP, of_listener, own_setting, takes_client_auth
from kohort.broker.config.network import EVERY_INTERFACE, Endpoint
from kohort.broker.config.security import LOGIN_MODULES
from kohort.broker.core.security.addresses import FailureDelays, is_loopback
from kohort.broker.core.security.session import ANONYMOUS, USER, Session
from kohort.broker.network.service import Listener
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.peer_log import PeerLog
from kohort.broker.security.errors import StoreError
from kohort.broker.security.users import MECHANISMS, Users
from kohort.protocol.scram import HASHES

# The modules of TLS, SASL and the users file are imported by the first listener or setting that
# uses them: 5 ms and 0.7 MiB.
if TYPE_CHECKING:
    from kohort.broker.security.authenticator import Dispatcher, Exchange
    from kohort.broker.security.http_guard import HttpGuard
    from kohort.broker.security.passwords import Passwords
    from kohort.broker.security.tls_listener import TlsListener
    from kohort.broker.security.tokens import Tokens
    from kohort.broker.security.users_file import UsersFile


class DisabledUsers:
    """Users disabled by the current settings, whose authentication fails. Names are compared
    exactly.

    Their open connections stay, unless the settings disconnect the user as well.
    """

    def __init__(self, settings: CurrentConfig) -> None:
        self._settings = settings
        self._disconnect: Callable[[Callable[[Session], bool]], None] = lambda _: None
        self._names: frozenset[str] = frozenset()
        self._disconnected: frozenset[str] = frozenset()
        self._on_change()
        settings.on_change(self._on_change)

    def __contains__(self, user: str) -> bool:
        return user in self._names

    def on_disconnect(self, disconnect: Callable[[Callable[[Session], bool]], None]) -> None:
        """Set the function to call when a change of the settings disconnects users; its argument is
        a predicate for their sessions.
        """
        self._disconnect = disconnect

    def _on_change(self) -> None:
        config = self._settings.config
        before = self._disconnected
        # Names are percent-encoded, because they are items of a comma-separated list.
        self._names = frozenset(map(unquote, config.kohort_users_disabled))
        self._disconnected = self._names & {*map(unquote, config.kohort_users_disconnected)}
        ending = self._disconnected - before
        if ending:
            self._disconnect(lambda session: _is_of(session, ending))


def _is_of(session: Session, users: frozenset[str]) -> bool:
    """Whether the session's client is authenticated as one of `users`."""
    principal = session.principal
    return principal != ANONYMOUS and principal.type == USER and principal.name in users


logger = logging.getLogger(__name__)

NONCE_BYTES: Final = 24

RELOAD_INTERVAL_S: Final = 60
"""Interval of the checks whether files with keys, certificates or users have changed."""


class SecureListeners:
    """Creates the listeners, and reloads their certificates and the users file."""

    def __init__(
        self,
        settings: CurrentConfig,
        executor: Executor,
        *,
        users: Users,
        clock: Clock,
        count: Callable[[str, str, str], None],
        background_tasks: BackgroundTasks,
    ) -> None:
        """`count` is called with listener, mechanism and result of each authentication attempt;
        `background_tasks` runs the checks for changed files.
        """
        self.tls: dict[str, TlsListener] = {}
        """TLS settings of the listeners that use it, by name."""
        self.tokens: list[Tokens] = []
        """Verifiers of tokens, one for each listener that uses them, and for the HTTP port."""
        self.users_file = _users_file(settings.config, users)
        self._settings = settings
        self._executor = executor
        self._users = users
        self._clock = clock
        self._count = count
        self._background_tasks = background_tasks
        self.disabled = DisabledUsers(settings)
        self._passwords: Passwords | None = None
        """Checks the passwords of PLAIN and of the HTTP port."""
        self._delays = FailureDelays()
        self._given: dict[str, Mapping[str, str]] = {}
        """Passwords in `sasl.jaas.config`, by listener with PLAIN."""
        # The settings after the last change, to determine which listeners the next one affects.
        self._own = dict(settings.own)
        self._client_auth = settings.config.ssl_client_auth
        self._watching_files: asyncio.Task[None] | None = None
        self._reloading: asyncio.Task[None] | None = None

    def start(
        self, dispatcher: Dispatcher, log: PeerLog, http: TlsListener | None = None
    ) -> dict[str, Listener]:
        """Return all listeners by name, and start reloading their certificates and the certificate
        of the HTTP port. Reads files.

        Raises:
            StoreError: a key store, a trust store or the mapping rules cannot be used; or the
                initial settings disable users.
            UsersFileError: the users file cannot be used.
        """
        self._dispatcher, self._log = dispatcher, log
        if self.users_file is not None:
            self.users_file.load()
        self._check_disabled()
        self._check_unsecured()
        self._warn()
        config = self._settings.config
        protocols = {
            endpoint.listener: config.protocol_of(endpoint.listener)
            for endpoint in config.listener_endpoints
        }
        if any(protocol.startswith("SASL_") for protocol in protocols.values()):
            # Loaded only if a listener needs the secret, because the first start writes it to disk.
            self._users.load_secret()
        made = {name: self._listener(name, protocol) for name, protocol in protocols.items()}
        self._warn_of_no_users(protocols)
        if http is not None:
            self.tls[HTTP] = http
        self._settings.add_own_check(self._check)
        self._settings.on_change(self._on_change)
        if self.tls or self.users_file is not None:
            self._watching_files = self._background_tasks.start(
                "reload of files", self._reload_changed_files
            )
        return made

    def _check_disabled(self) -> None:
        """Raise StoreError if the initial settings disable users: disabling another user at run
        time would replace the list, and so enable these users again.
        """
        given = self._settings.loaded.config
        if given.kohort_users_disabled or given.kohort_users_disconnected:
            raise StoreError(
                "kohort.users.disabled and kohort.users.disconnected cannot be set at the start; "
                "use `kohort users disable`, with --data while the broker is stopped"
            )

    def is_open_to_anonymous(self, host: str) -> bool:
        """Whether clients that can reach the address `host` of this machine can also reach a
        listener without authentication, and may read and write everything there.
        """
        config = self._settings.config
        return not config.authorizer_class_name and any(
            not self._authenticates(endpoint)
            and (is_loopback(host) or not is_loopback(endpoint.host))
            for endpoint in config.listener_endpoints
        )

    def _authenticates(self, endpoint: Endpoint) -> bool:
        protocol = self._settings.config.protocol_of(endpoint.listener)
        own = self._settings.of_listener(endpoint.listener)
        return protocol.startswith("SASL_") or (
            protocol == "SSL" and own.ssl_client_auth == "required"
        )

    def _warn(self) -> None:
        """Log warnings for listeners without authentication, or with ineffective settings."""
        config = self._settings.config
        for endpoint in config.listener_endpoints:
            protocol = config.protocol_of(endpoint.listener)
            own = self._settings.of_listener(endpoint.listener)
            if not self._authenticates(endpoint) and not is_loopback(endpoint.host):
                logger.warning("Listener %s does not authenticate clients", endpoint)
            if not takes_client_auth(config, self._settings.own, endpoint.listener):
                logger.warning(
                    "ssl.client.auth applies only to SSL listeners, as in Kafka;"
                    " listener.name.%s.ssl.client.auth makes listener %s request certificates, too",
                    endpoint.listener.lower(),
                    endpoint.listener,
                )
            trust = own.ssl_truststore_location, own.ssl_truststore_certificates
            if (
                protocol.endswith("SSL")
                and own.ssl_client_auth == "requested"
                and trust == (None, None)
            ):
                logger.warning(
                    "Listener %s requests client certificates (ssl.client.auth) and rejects all of"
                    " them, because ssl.truststore.location is not set",
                    endpoint.listener,
                )
        self._warn_of_names()

    def _warn_of_no_users(self, protocols: Mapping[str, str]) -> None:
        """Log a warning if a listener requires passwords and there are no users."""
        if len(self._users) or any(self._given.values()):
            return
        passwords = {"PLAIN", *HASHES}
        for name, protocol in protocols.items():
            own = self._settings.of_listener(name).sasl_enabled_mechanisms
            if protocol.startswith("SASL_") and passwords.intersection(own):
                logger.warning(
                    "Listener %s requires passwords, and there are no users yet: `kohort users add"
                    " NAME --data %s` adds the first one while the broker is stopped",
                    name,
                    self._settings.config.data_directory.absolute(),
                )

    def _warn_of_names(self) -> None:
        """Log a warning for each unadvertised listener: its clients are redirected to another."""
        config = self._settings.config
        advertised = config.advertised_endpoints
        for endpoint in config.listener_endpoints:
            if all(other.listener != endpoint.listener for other in advertised):
                logger.warning(
                    "advertised.listeners does not contain listener %s: its clients are redirected"
                    " to %s",
                    endpoint.listener,
                    advertised[0],
                )

    @property
    def settings(self) -> CurrentConfig:
        return self._settings

    def http_guard(self, ways: tuple[str, ...]) -> HttpGuard:
        """Return the authenticator of the HTTP port. Reads files. Raises StoreError."""
        from kohort.broker.security.http_guard import HttpGuard  # noqa: PLC0415

        config = self._settings.of_listener(HTTP)
        self._users.load_secret()
        tokens = None
        if "bearer" in ways:
            tokens = self._tokens(HTTP, config)
        return HttpGuard(
            ways=ways,
            check_password=self._password_checks().check,
            check_token=None if tokens is None else tokens.check,
            clock=self._clock,
            delays=self._delays,
            delay_ms=config.connection_failed_authentication_delay_ms,
            count=self._count,
            is_disabled=self.disabled.__contains__,
        )

    def _password_checks(self) -> Passwords:
        from kohort.broker.security.passwords import Passwords  # noqa: PLC0415

        if self._passwords is None:
            is_disabled = self.disabled.__contains__
            self._passwords = Passwords(self._users, self._clock, is_disabled=is_disabled)
        return self._passwords

    def _tokens(self, listener: str, config: BrokerConfig) -> Tokens:
        from kohort.broker.security.tokens import Tokens  # noqa: PLC0415

        tokens = Tokens(listener, config, clock=self._clock, executor=self._executor)
        self.tokens.append(tokens)
        return tokens

    def _unsecured_tokens(self, config: BrokerConfig) -> Callable[[str], Exchange]:
        from kohort.broker.security.tokens import OAuthExchange, UnsecuredTokens, token_rules  # noqa: PLC0415

        tokens = UnsecuredTokens(token_rules(config), self._clock)
        return lambda _: OAuthExchange(tokens)

    def _check_unsecured(self) -> None:
        """Raise StoreError if a listener reachable from other machines accepts unsigned tokens."""
        config = self._settings.config
        if not config.kohort_oauth_unsecured:
            return
        for endpoint in config.listener_endpoints:
            is_sasl = config.protocol_of(endpoint.listener).startswith("SASL_")
            own = self._settings.of_listener(endpoint.listener).sasl_enabled_mechanisms
            if is_sasl and "OAUTHBEARER" in own and not is_loopback(endpoint.host):
                raise StoreError(
                    f"listener {endpoint} accepts unsigned tokens (kohort.oauth.unsecured), and"
                    " other machines can reach it: bind it to localhost, or set"
                    " sasl.oauthbearer.jwks.endpoint.url"
                )
        logger.warning(
            "OAUTHBEARER accepts unsigned tokens: everybody on this machine can log in as any user"
            " (kohort.oauth.unsecured)"
        )

    def close(self) -> None:
        """Stop checking files for changes, and checking passwords."""
        if self._passwords is not None:
            self._passwords.close()
        for task in (self._watching_files, self._reloading):
            if task is not None:
                task.cancel()

    def reload_soon(self) -> None:
        """Reload all stores and the users file, in another thread."""
        for tls in self.tls.values():
            self._executor.submit(tls.reload)
        if self.users_file is not None:
            again = self.users_file.reload(self._executor)
            self._reloading = asyncio.get_running_loop().create_task(again)

    def _listener(self, name: str, protocol: str) -> Listener:
        tls = None
        if protocol.endswith("SSL"):
            tls = self._tls_listener(name, authenticates=protocol == "SSL")
        if not protocol.startswith("SASL_"):
            return Listener(name, tls=tls)
        return self._sasl_listener(name, tls)

    def _tls_listener(self, name: str, *, authenticates: bool) -> TlsListener:
        from kohort.broker.core.security.mapping_rules import RulesError  # noqa: PLC0415
        from kohort.broker.security.tls_listener import TlsListener  # noqa: PLC0415

        try:
            tls = TlsListener(
                name,
                partial(self._settings.of_listener, name),
                authenticates=authenticates,
                is_disabled=self.disabled.__contains__,
            )
        except RulesError as error:
            raise StoreError(f"listener {name}: ssl.principal.mapping.rules: {error}") from None
        self.tls[name] = tls
        for host in advertised_hosts(self._settings.config, name):
            tls.warn_of_name(host)
        return tls

    def _sasl_listener(self, name: str, tls: TlsListener | None) -> Listener:
        from kohort.broker.security.authenticator import FRAME_BYTES_MAX, SaslListener  # noqa: PLC0415

        own = self._settings.of_listener(name)
        if tls is None and "PLAIN" in own.sasl_enabled_mechanisms:
            logger.warning("Listener %s accepts passwords over unencrypted connections", name)
        sasl_listener = SaslListener(
            name=name,
            exchanges={
                mechanism: self._exchanges(name, mechanism)
                for mechanism in own.sasl_enabled_mechanisms
            },
            config=cache(partial(self._settings.of_listener, name)),
            dispatcher=self._dispatcher,
            clock=self._clock,
            log=self._log,
            delays=self._delays,
            count=self._count,
            is_disabled=self.disabled.__contains__,
        )
        return Listener(
            name,
            tls=tls,
            new_service=sasl_listener.new_authenticator,
            first_frame_max_bytes=min(_receive_size(own), FRAME_BYTES_MAX),
        )

    def _exchanges(self, listener: str, mechanism: str) -> Callable[[str], Exchange]:
        """Return a factory of SASL exchanges; its argument is the client's IP address."""
        if mechanism == "PLAIN":
            from kohort.broker.security.passwords import PlainExchange  # noqa: PLC0415

            passwords = self._password_checks()
            self._given[listener] = _given_passwords(
                self._settings.of_listener(listener, mechanism)
            )
            return lambda ip: PlainExchange(passwords, self._given[listener], ip)
        if mechanism not in HASHES:
            config = self._settings.of_listener(listener, mechanism)
            if config.kohort_oauth_unsecured:
                return self._unsecured_tokens(config)
            tokens = self._tokens(listener, config)
            from kohort.broker.security.tokens import OAuthExchange  # noqa: PLC0415

            return lambda _: OAuthExchange(tokens)
        from kohort.broker.core.security.sasl import ScramExchange  # noqa: PLC0415

        find = partial(self._users.find, mechanism)
        why = self._why_unknown
        return lambda _: ScramExchange(mechanism, find, _new_nonce(), why)

    def _why_unknown(self, user: str) -> str:
        """Return why a user has no credential for the mechanism, for the log. Takes the same time
        for an unknown user.
        """
        others = [MECHANISMS[number] for number, _ in self._users.credentials_of(user)]
        reason = f"the user has credentials only for {', '.join(others)}"
        return reason if others else "unknown user"

    def _check(self, config: BrokerConfig, own: Mapping[str, str]) -> None:
        """Raise ValueError if the settings name unusable key or trust stores. Reads files."""
        try:
            for name in self._changed(config, own):
                self.tls[name].check(of_listener(config, own, name))
        except StoreError as error:
            raise ValueError(str(error)) from None

    def _on_change(self) -> None:
        config, own = self._settings.config, self._settings.own
        changed = self._changed(config, own)
        self._own, self._client_auth = dict(own), config.ssl_client_auth
        for name in changed:
            # Not in another thread: the client that changed the setting may reconnect immediately.
            self.tls[name].reload()
        for name in self._given:
            self._given[name] = _given_passwords(of_listener(config, own, name, "PLAIN"))

    def _changed(self, config: BrokerConfig, own: Mapping[str, str]) -> list[str]:
        if config.ssl_client_auth != self._client_auth:
            return list(self.tls)
        names = {name for name in {*own, *self._own} if own.get(name) != self._own.get(name)}
        changed = {known.listener for known in map(own_setting, names) if known is not None}
        return [listener for listener in self.tls if listener in changed]

    async def _reload_changed_files(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(RELOAD_INTERVAL_S)
            for name, tls in list(self.tls.items()):
                try:
                    await loop.run_in_executor(self._executor, tls.reload_if_changed)
                except Exception:
                    logger.exception("Cannot reload the TLS stores of listener %s", name)
            if self.users_file is not None:
                await self.users_file.reload_if_changed(self._executor)


def advertised_hosts(config: BrokerConfig, listener: str) -> Iterator[str]:
    """Yield the hosts that a listener advertises; for a wildcard address, this machine's name."""
    for endpoint in config.advertised_endpoints:
        if endpoint.listener == listener:
            is_wildcard = endpoint.host in EVERY_INTERFACE
            yield socket.gethostname() if is_wildcard else endpoint.host


def _users_file(config: BrokerConfig, users: Users) -> UsersFile | None:
    if config.kohort_users_file is None:
        return None
    from kohort.broker.security.users_file import UsersFile  # noqa: PLC0415

    return UsersFile(Path(config.kohort_users_file), users)


def _receive_size(config: BrokerConfig) -> int:
    known = BROKER_SETTINGS["sasl.server.max.receive.size"]
    given = config.sasl_server_max_receive_size
    return given if given >= 0 else int(str(known.default))


def _given_passwords(config: BrokerConfig) -> dict[str, str]:
    if not config.sasl_jaas_config:
        return {}
    from kohort.formats.jaas import JaasError, parse_login_module  # noqa: PLC0415

    try:
        module = parse_login_module(config.sasl_jaas_config, LOGIN_MODULES)
    except JaasError as error:
        # Possible if the value was set at run time, for a listener that did not exist then.
        raise StoreError(f"sasl.jaas.config: {error}") from None
    return {
        name.removeprefix("user_"): password
        for name, password in module.options.items()
        if name.startswith("user_")
    }


def _new_nonce() -> str:
    return base64.urlsafe_b64encode(os.urandom(NONCE_BYTES)).decode()
