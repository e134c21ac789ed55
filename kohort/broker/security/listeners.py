"""The broker's listeners with what each asks of its clients, as the settings say now."""

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import partial
from typing import Final

from kohort.broker.config import BrokerConfig
from kohort.broker.config.current import CurrentConfig
from kohort.broker.config.listeners import own_setting
from kohort.broker.core.security.mapping_rules import RulesError
from kohort.broker.network.listener import Listener
from kohort.broker.security.tls_context import StoreError
from kohort.broker.security.tls_listener import TlsListener

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S: Final = 60
"""How often files of keys and certificates are looked at."""


class SecureListeners:
    """Makes the listeners, and renews their certificates."""

    def __init__(self, settings: CurrentConfig, executor: Executor) -> None:
        self.tls: dict[str, TlsListener] = {}
        """TLS of those listeners that use it, by name."""
        self._settings = settings
        self._executor = executor
        self._own = dict(settings.own)
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> dict[str, Listener]:
        """All listeners by name; from now on their certificates are renewed. Reads files.

        Raises:
            StoreError: a key store or trust store cannot be used, or the mapping rules.
        """
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

    def close(self) -> None:
        """Look at no files any more."""
        if self._looking is not None:
            self._looking.cancel()

    def reload_soon(self) -> None:
        """Read all stores again, on another thread."""
        for tls in self.tls.values():
            self._executor.submit(tls.reload)

    def _listener(self, name: str, protocol: str) -> Listener:
        if protocol.startswith("SASL_"):
            mechanisms = ", ".join(self._settings.of_listener(name).sasl_enabled_mechanisms)
            raise StoreError(f"listener {name}: {mechanisms} cannot be served yet")
        tls = None
        if protocol.endswith("SSL"):
            config = partial(self._settings.of_listener, name)
            try:
                tls = TlsListener(name, config, lets_in=protocol == "SSL")
            except RulesError as error:
                raise StoreError(f"listener {name}: ssl.principal.mapping.rules: {error}") from None
            self.tls[name] = tls
        return Listener(name, tls=tls)

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
