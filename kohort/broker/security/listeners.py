"""The broker's listeners, with what each requires of its clients under the current settings."""

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

from kohort.broker.config import BrokerConfig
from kohort.broker.config.current import BROKER_SETTINGS, CurrentConfig
from kohort.broker.config.endpoints import EVERY_INTERFACE
from kohort.broker.config.listeners import HTTP, of_listener, own_setting, takes_client_auth
from kohort.broker.config.security import LOGIN_MODULES
from kohort.broker.core.security.addresses import address_block_of, is_loopback
from kohort.broker.core.security.failure_delays import FailureDelays
from kohort.broker.core.security.mapping_rules import RulesError
from kohort.broker.core.security.scram import ScramExchange
from kohort.broker.network.connection.connection import Listener
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.lasting_tasks import LastingTasks
from kohort.broker.runtime.peer_log import PeerLog
from kohort.broker.security.authenticator import FRAME_BYTES_MAX, Dispatcher, Exchange, SaslListener
from kohort.broker.security.disabled_users import DisabledUsers
from kohort.broker.security.http_guard import HttpGuard
from kohort.broker.security.passwords import Passwords, PlainExchange
from kohort.broker.security.tls_context import StoreError
from kohort.broker.security.tls_listener import TlsListener
from kohort.broker.security.users import MECHANISMS, Users
from kohort.broker.security.users_file import UsersFile
from kohort.formats.jaas import JaasError, parse_login_module
from kohort.protocol.scram import HASHES

if TYPE_CHECKING:
    from kohort.broker.security.tokens import Tokens

logger = logging.getLogger(__name__)

NONCE_BYTES: Final = 24

LOOK_INTERVAL_S: Final = 60
"""How often files of keys, certificates and users are checked for changes."""


class SecureListeners:
    """Makes the listeners, and renews their certificates and the users of a file."""

    def __init__(
        self,
        settings: CurrentConfig,
        executor: Executor,
        *,
        users: Users,
        clock: Clock,
        count: Callable[[str, str, str], None],
        lasting: LastingTasks,
    ) -> None:
        """`count` is called with listener, mechanism and result of each authentication attempt;
        `lasting` runs the look at files.
        """
        self.tls: dict[str, TlsListener] = {}
        """TLS of those listeners that use it, by name."""
        self.tokens: list[Tokens] = []
        """Keys for tokens, of each listener and mechanism that takes them."""
        path = settings.config.kohort_users_file
        self.users_file = None if path is None else UsersFile(Path(path), users)
        self._settings = settings
        self._executor = executor
        self._users = users
        self._clock = clock
        self._count = count
        self._lasting = lasting
        self.disabled = DisabledUsers(settings)
        self.passwords = Passwords(users, clock, is_disabled=self.disabled.__contains__)
        """Checks passwords of PLAIN and of the HTTP port."""
        self._delays = FailureDelays(address_block_of)
        self._given: dict[str, Mapping[str, str]] = {}
        """Passwords given in the settings themselves, by listener with PLAIN."""
        # The settings after the last change, to see which listeners the next one concerns.
        self._own = dict(settings.own)
        self._client_auth = settings.config.ssl_client_auth
        self._looking: asyncio.Task[None] | None = None
        self._reloading: asyncio.Task[None] | None = None

    def start(
        self, dispatcher: Dispatcher, log: PeerLog, http: TlsListener | None = None
    ) -> dict[str, Listener]:
        """Return all listeners by name, and begin to renew their certificates, and that of the
        HTTP port if it has one. Reads files.

        Raises:
            StoreError: a key store, a trust store or the mapping rules cannot be used; or users
                are disabled by settings given at the start.
            UsersFileError: the file of users cannot be used.
        """
        self._dispatcher, self._log = dispatcher, log
        if self.users_file is not None:
            self.users_file.load()
        self._check_disabled()
        self._check_unsecured()
        self._warn()
        config = self._settings.config
        protocols = {
            one.listener: config.protocol_of(one.listener) for one in config.listener_endpoints
        }
        if any(protocol.startswith("SASL_") for protocol in protocols.values()):
            # Only if a listener needs it: it is written to disk at the first start.
            self._users.load_secret()
        made = {name: self._listener(name, protocol) for name, protocol in protocols.items()}
        self._warn_of_no_users(protocols)
        if http is not None:
            self.tls[HTTP] = http
        self._settings.add_own_check(self._check)
        self._settings.on_change(self._on_change)
        if self.tls or self.users_file is not None:
            self._looking = self._lasting.start("renewal of files", self._renew_changed_files)
        return made

    def _check_disabled(self) -> None:
        """Raise StoreError if users are disabled by settings of the start: the first user that is
        disabled at run time would replace that list and let those users in again.
        """
        given = self._settings.loaded.config
        if given.kohort_users_disabled or given.kohort_users_disconnected:
            raise StoreError(
                "kohort.users.disabled and kohort.users.disconnected cannot be set at the start; "
                "`kohort users disable` sets them, with --data while the broker is stopped"
            )

    def _warn(self) -> None:
        """Log a warning for each listener that is reachable without authentication."""
        config = self._settings.config
        for one in config.listener_endpoints:
            protocol = config.protocol_of(one.listener)
            own = self._settings.of_listener(one.listener)
            asks = protocol.startswith("SASL_") or (
                protocol == "SSL" and own.ssl_client_auth == "required"
            )
            if not asks and not is_loopback(one.host):
                logger.warning("Listener %s lets everybody in who can reach it", one)
            if not takes_client_auth(config, self._settings.own, one.listener):
                logger.warning(
                    "ssl.client.auth is for listeners with SSL alone, as in Kafka;"
                    " listener.name.%s.ssl.client.auth has listener %s ask for certificates, too",
                    one.listener.lower(),
                    one.listener,
                )
            trust = own.ssl_truststore_location, own.ssl_truststore_certificates
            if (
                protocol.endswith("SSL")
                and own.ssl_client_auth == "requested"
                and trust == (None, None)
            ):
                logger.warning(
                    "Listener %s asks for certificates (ssl.client.auth) and refuses every one,"
                    " because no ssl.truststore.location has an authority that may sign them",
                    one.listener,
                )
        self._warn_of_names()

    def _warn_of_no_users(self, protocols: Mapping[str, str]) -> None:
        """Log a warning if a listener takes passwords, and there is none that it could take."""
        if len(self._users) or any(self._given.values()):
            return
        passwords = {"PLAIN", *HASHES}
        for name, protocol in protocols.items():
            own = self._settings.of_listener(name).sasl_enabled_mechanisms
            if protocol.startswith("SASL_") and passwords.intersection(own):
                logger.warning(
                    "Listener %s takes passwords, and there are no users yet: `kohort users add"
                    " NAME --data %s` adds the first one while the broker is stopped",
                    name,
                    self._settings.config.data_directory.absolute(),
                )

    def _warn_of_names(self) -> None:
        """Log a warning for each listener whose clients are told to come by another one."""
        config = self._settings.config
        told = config.advertised_endpoints
        for one in config.listener_endpoints:
            if all(other.listener != one.listener for other in told):
                logger.warning(
                    "advertised.listeners has no listener %s: its clients are told to connect to"
                    " %s",
                    one.listener,
                    told[0],
                )

    @property
    def settings(self) -> CurrentConfig:
        """The settings in force."""
        return self._settings

    def http_guard(self, ways: tuple[str, ...]) -> HttpGuard:
        """The guard of the HTTP port, which checks passwords and tokens. Reads files.

        Raises StoreError.
        """
        config = self._settings.of_listener(HTTP)
        self._users.load_secret()
        tokens = None
        if "bearer" in ways:
            tokens = self._tokens(HTTP, config)
        return HttpGuard(
            ways=ways,
            check_password=self.passwords.check,
            check_token=None if tokens is None else tokens.check,
            clock=self._clock,
            delays=self._delays,
            delay_ms=config.connection_failed_authentication_delay_ms,
            count=self._count,
            is_disabled=self.disabled.__contains__,
        )

    def _tokens(self, listener: str, config: BrokerConfig) -> Tokens:
        # Imported with the first listener that accepts tokens, because it imports much.
        from kohort.broker.security.tokens import Tokens  # noqa: PLC0415

        tokens = Tokens(listener, config, clock=self._clock, executor=self._executor)
        self.tokens.append(tokens)
        return tokens

    def _unsecured_tokens(self, config: BrokerConfig) -> Callable[[str], Exchange]:
        # As in `_tokens`.
        from kohort.broker.security.tokens import OAuthExchange, token_rules  # noqa: PLC0415
        from kohort.broker.security.unsecured_tokens import UnsecuredTokens  # noqa: PLC0415

        tokens = UnsecuredTokens(token_rules(config), self._clock)
        return lambda _: OAuthExchange(tokens)

    def _check_unsecured(self) -> None:
        """Raise StoreError if other machines could be let in by tokens that no one has signed."""
        config = self._settings.config
        if not config.kohort_oauth_unsecured:
            return
        for one in config.listener_endpoints:
            is_sasl = config.protocol_of(one.listener).startswith("SASL_")
            own = self._settings.of_listener(one.listener).sasl_enabled_mechanisms
            if is_sasl and "OAUTHBEARER" in own and not is_loopback(one.host):
                raise StoreError(
                    f"listener {one} takes tokens that no one has signed (kohort.oauth.unsecured),"
                    " and other machines reach it: have it listen on localhost, or name the keys"
                    " of an issuer by sasl.oauthbearer.jwks.endpoint.url"
                )
        logger.warning(
            "OAUTHBEARER lets everybody on this machine in as any user (kohort.oauth.unsecured)"
        )

    def close(self) -> None:
        """Stop checking files and passwords."""
        self.passwords.close()
        for task in (self._looking, self._reloading):
            if task is not None:
                task.cancel()

    def reload_soon(self) -> None:
        """Read all stores, and the file of users, again, on another thread."""
        for tls in self.tls.values():
            self._executor.submit(tls.reload)
        if self.users_file is not None:
            again = self.users_file.reload(self._executor)
            self._reloading = asyncio.get_running_loop().create_task(again)

    def _listener(self, name: str, protocol: str) -> Listener:
        tls = None
        if protocol.endswith("SSL"):
            config = partial(self._settings.of_listener, name)
            try:
                tls = TlsListener(
                    name,
                    config,
                    lets_in=protocol == "SSL",
                    is_disabled=self.disabled.__contains__,
                )
            except RulesError as error:
                raise StoreError(f"listener {name}: ssl.principal.mapping.rules: {error}") from None
            self.tls[name] = tls
            for host in advertised_hosts(self._settings.config, name):
                tls.warn_of_name(host)
        if not protocol.startswith("SASL_"):
            return Listener(name, tls=tls)
        own = self._settings.of_listener(name)
        if tls is None and "PLAIN" in own.sasl_enabled_mechanisms:
            logger.warning("Listener %s takes passwords that pass without TLS", name)
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
            first_frame_max_bytes=_first_frame_max_bytes(own),
        )

    def _exchanges(self, listener: str, mechanism: str) -> Callable[[str], Exchange]:
        """The function that begins an attempt of a client at an address, for one mechanism."""
        if mechanism == "PLAIN":
            self._given[listener] = _given_passwords(
                self._settings.of_listener(listener, mechanism)
            )
            return lambda ip: PlainExchange(self.passwords, self._given[listener], ip)
        if mechanism not in HASHES:
            config = self._settings.of_listener(listener, mechanism)
            if config.kohort_oauth_unsecured:
                return self._unsecured_tokens(config)
            tokens = self._tokens(listener, config)
            from kohort.broker.security.tokens import OAuthExchange  # noqa: PLC0415 - it is there.

            return lambda _: OAuthExchange(tokens)
        find = partial(self._users.find, mechanism)
        why = self._why_unknown
        return lambda _: ScramExchange(mechanism, find, _new_nonce(), why)

    def _why_unknown(self, user: str) -> str:
        """Why a user has no credential for a mechanism, for the log alone; for every user the same
        work.
        """
        others = [MECHANISMS[number] for number, _ in self._users.credentials_of(user)]
        found = f"the user has a password for {', '.join(others)} alone"
        return found if others else "unknown user"

    def _check(self, config: BrokerConfig, own: Mapping[str, str]) -> None:
        """Raise ValueError if these settings name stores that cannot be used. Reads files."""
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
            # At once: the client that changed it may reconnect next.
            self.tls[name].reload()
        for name in self._given:
            self._given[name] = _given_passwords(of_listener(config, own, name, "PLAIN"))

    def _changed(self, config: BrokerConfig, own: Mapping[str, str]) -> list[str]:
        """Listeners with TLS that have a setting with a new value since the last change."""
        if config.ssl_client_auth != self._client_auth:
            return list(self.tls)
        names = {name for name in {*own, *self._own} if own.get(name) != self._own.get(name)}
        found = {known.listener for known in map(own_setting, names) if known is not None}
        return [listener for listener in self.tls if listener in found]

    async def _renew_changed_files(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            for name, tls in list(self.tls.items()):
                try:
                    await loop.run_in_executor(self._executor, tls.look)
                except Exception:
                    logger.exception("The files of listener %s are not renewed", name)
            if self.users_file is not None:
                await self.users_file.look(self._executor)


def advertised_hosts(config: BrokerConfig, listener: str) -> Iterator[str]:
    """Where clients of a listener are told to connect to: this machine if nothing else is said."""
    for told in config.advertised_endpoints:
        if told.listener == listener:
            yield socket.gethostname() if told.host in EVERY_INTERFACE else told.host


def _first_frame_max_bytes(config: BrokerConfig) -> int:
    """Largest frame of an unauthenticated client; it is always limited."""
    known = BROKER_SETTINGS["sasl.server.max.receive.size"]
    given = config.sasl_server_max_receive_size
    wanted = given if given >= 0 else int(str(known.default))
    return min(wanted, FRAME_BYTES_MAX)


def _given_passwords(config: BrokerConfig) -> dict[str, str]:
    """Users of PLAIN that the settings themselves give, with their passwords."""
    if not config.sasl_jaas_config:
        return {}
    try:
        module = parse_login_module(config.sasl_jaas_config, LOGIN_MODULES)
    except JaasError as error:
        # Set at run time, for a listener that there was not.
        raise StoreError(f"sasl.jaas.config: {error}") from None
    return {
        name.removeprefix("user_"): password
        for name, password in module.options.items()
        if name.startswith("user_")
    }


def _new_nonce() -> str:
    return base64.urlsafe_b64encode(os.urandom(NONCE_BYTES)).decode()
