"""The broker's listeners with what each asks of its clients, as the settings say now."""

from __future__ import annotations

import asyncio
import base64
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from kohort.broker.config import BrokerConfig
from kohort.broker.config.current import CurrentConfig
from kohort.broker.config.listeners import own_setting
from kohort.broker.core.security.failure_delays import FailureDelays
from kohort.broker.core.security.mapping_rules import RulesError
from kohort.broker.core.security.scram import ScramExchange
from kohort.broker.network.listener import Listener
from kohort.broker.network.peer_log import PeerLog
from kohort.broker.network.service import Service
from kohort.broker.runtime.clock import Clock
from kohort.broker.security.gate import Exchange, GateKeeper
from kohort.broker.security.passwords import Passwords, PlainExchange
from kohort.broker.security.tls_context import StoreError
from kohort.broker.security.tls_listener import TlsListener
from kohort.broker.security.users import Users
from kohort.jaas import JaasError, parse_login_module
from kohort.protocol.scram import HASHES

if TYPE_CHECKING:
    from kohort.broker.security.tokens import Tokens

logger = logging.getLogger(__name__)

LOGIN_MODULES: Final = ("PlainLoginModule", "ScramLoginModule", "OAuthBearerLoginModule")
"""Any other Java class stops the start."""
NONCE_BYTES: Final = 24

LOOK_INTERVAL_S: Final = 60
"""How often files of keys and certificates are looked at."""


class SecureListeners:
    """Makes the listeners, and renews their certificates."""

    def __init__(
        self,
        settings: CurrentConfig,
        executor: Executor,
        *,
        users: Users,
        clock: Clock,
        count: Callable[[str, str, str], None],
    ) -> None:
        """`count` is told listener, mechanism and result of each attempt to authenticate."""
        self.tls: dict[str, TlsListener] = {}
        """TLS of those listeners that use it, by name."""
        self.tokens: list[Tokens] = []
        """Keys of those that take tokens."""
        self._settings = settings
        self._executor = executor
        self._users = users
        self._clock = clock
        self._count = count
        self._passwords = Passwords(users, clock)
        self._delays = FailureDelays()
        self._own = dict(settings.own)
        self._looking: asyncio.Task[None] | None = None

    def start(self, dispatcher: Service, log: PeerLog) -> dict[str, Listener]:
        """All listeners by name; from now on their certificates are renewed. Reads files.

        Raises:
            StoreError: a key store or trust store cannot be used, or the mapping rules.
        """
        self._dispatcher, self._log = dispatcher, log
        self._warn()
        config = self._settings.config
        made = {
            one.listener: self._listener(one.listener, config.protocol_of(one.listener))
            for one in config.listener_endpoints
        }
        if self.tls:
            self._settings.add_own_check(self._check)
            self._settings.on_change(self._on_change)
            self._looking = asyncio.get_running_loop().create_task(self._look_again_and_again())
        return made

    def _warn(self) -> None:
        """Name what everybody can reach without saying who he is."""
        config = self._settings.config
        for one in config.listener_endpoints:
            protocol = config.protocol_of(one.listener)
            own = self._settings.of_listener(one.listener)
            asks = protocol.startswith("SASL_") or (
                protocol == "SSL" and own.ssl_client_auth == "required"
            )
            if not asks and not is_loopback(one.host):
                logger.warning("Listener %s lets everybody in who can reach it", one)

    def close(self) -> None:
        """Look at no files any more, and check no passwords."""
        self._passwords.close()
        if self._looking is not None:
            self._looking.cancel()

    def reload_soon(self) -> None:
        """Read all stores again, on another thread."""
        for tls in self.tls.values():
            self._executor.submit(tls.reload)

    def _listener(self, name: str, protocol: str) -> Listener:
        tls = None
        if protocol.endswith("SSL"):
            config = partial(self._settings.of_listener, name)
            try:
                tls = TlsListener(name, config, lets_in=protocol == "SSL")
            except RulesError as error:
                raise StoreError(f"listener {name}: ssl.principal.mapping.rules: {error}") from None
            self.tls[name] = tls
        if not protocol.startswith("SASL_"):
            return Listener(name, tls=tls)
        own = self._settings.of_listener(name)
        if tls is None and "PLAIN" in own.sasl_enabled_mechanisms:
            logger.warning("Listener %s takes passwords that pass without TLS", name)
        keeper = GateKeeper(
            listener=name,
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
        )
        return Listener(
            name,
            tls=tls,
            new_service=keeper.new_gate,
            first_frame_max_bytes=own.sasl_server_max_receive_size,
        )

    def _exchanges(self, listener: str, mechanism: str) -> Callable[[], Exchange]:
        """How an attempt by one mechanism begins."""
        if mechanism == "PLAIN":
            given = _given_passwords(self._settings.of_listener(listener, mechanism), listener)
            return partial(PlainExchange, self._passwords.check, given)
        if mechanism not in HASHES:
            # With the first listener that has it: it is much to import.
            from kohort.broker.security.tokens import OAuthExchange, Tokens  # noqa: PLC0415

            own = self._settings.of_listener(listener, mechanism)
            tokens = Tokens(listener, own, clock=self._clock, executor=self._executor)
            self.tokens.append(tokens)
            return partial(OAuthExchange, tokens)
        find = partial(self._users.find, mechanism)
        return lambda: ScramExchange(mechanism, find, _new_nonce())

    def _check(self, own: Mapping[str, str]) -> None:
        """Raise ValueError if these settings name stores that cannot be used. Reads files."""
        for name in self._changed(own):
            config: BrokerConfig = self._settings.of_listener(name, own=own)
            try:
                self.tls[name].check(config)
            except StoreError as error:
                raise ValueError(str(error)) from None

    def _on_change(self) -> None:
        changed = self._changed(self._settings.own)
        self._own = dict(self._settings.own)
        for name in changed:
            # At once: who asked for it may come by a new connection next.
            self.tls[name].reload()

    def _changed(self, own: Mapping[str, str]) -> list[str]:
        """Listeners with TLS whose stores are set otherwise than they were."""
        names = {name for name in {*own, *self._own} if own.get(name) != self._own.get(name)}
        found = {known.listener for known in map(own_setting, names) if known is not None}
        return [listener for listener in self.tls if listener in found]

    async def _look_again_and_again(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(LOOK_INTERVAL_S)
            for tls in self.tls.values():
                await loop.run_in_executor(self._executor, tls.look)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a listener at such a host."""
    return host in {"localhost", "::1"} or host.startswith("127.")


def _given_passwords(config: BrokerConfig, listener: str) -> dict[str, str]:
    """Users of PLAIN that the settings have themselves."""
    if not config.sasl_jaas_config:
        return {}
    try:
        module = parse_login_module(config.sasl_jaas_config, LOGIN_MODULES)
    except JaasError as error:
        raise StoreError(f"listener {listener}: sasl.jaas.config: {error}") from None
    return {
        name.removeprefix("user_"): password
        for name, password in module.options.items()
        if name.startswith("user_")
    }


def _new_nonce() -> str:
    return base64.urlsafe_b64encode(os.urandom(NONCE_BYTES)).decode()
