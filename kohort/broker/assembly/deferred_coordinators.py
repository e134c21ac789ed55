"""The coordinators, created when the first group or transaction needs them.

Their modules and classes take a fifth of the time of a start, and 3 MiB. They are created at the
start only if there is stored state, because groups must keep their sessions, and transactions whose
outcome is stored must be completed. Otherwise the first request to a coordinator creates them,
after their modules were imported on another thread, so that the event loop is not blocked.
"""

import asyncio
import importlib
import sys
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final

from kohort.broker.dispatch.registry import registered
from kohort.broker.handlers import SERVED
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import (
    CONSUMER_OFFSETS,
    REBALANCE_HISTORY,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from kohort.broker.topics.startup_progress import StartupProgress

if TYPE_CHECKING:
    from kohort.broker.assembly.coordinators import Coordinators

MODULE: Final = "kohort.broker.assembly.coordinators"
"""Imported on another thread before `DeferredCoordinators.get` is called on the event loop."""

_MEMBERSHIPS: Final = "kohort.broker.assembly.memberships"
_JOINING: Final = frozenset({"classic_groups", "consumer_groups"})
"""Handler modules whose requests may add members; these also need `_MEMBERSHIPS`."""

_SHARE: Final = "kohort.broker.assembly.share"
_SHARING: Final = frozenset(
    {"share_groups", "share_fetch", "share_acknowledge", "share_group_offsets"}
)
"""Handler modules of share group requests."""

_STATE: Final = (CONSUMER_OFFSETS, REBALANCE_HISTORY, TRANSACTION_STATE, SHARE_GROUP_STATE)
"""The topics that store the state of the coordinators."""


class DeferredCoordinators:
    def __init__(self, topics: TopicManager, make: Callable[[], "Coordinators"]) -> None:
        """`make` imports and creates the coordinators; it is called at most once."""
        self._topics = topics
        self._make = make
        self._after_answers: Callable[[Callable[[], None]], object] | None = None
        self.created: Coordinators | None = None
        """None until the first call of `get`."""

    def get(self) -> "Coordinators":
        """Return the coordinators; create them at the first call."""
        if self.created is None:
            self.created = self._create()
            self.created.begin()
        return self.created

    async def load(self, startup: StartupProgress) -> None:
        """Create the coordinators if there is stored state, and load it."""
        if self._has_state():
            self.created = self._create()
            await self.created.load(startup)

    def set_after_answers(self, after_answers: Callable[[Callable[[], None]], object]) -> None:
        """Set the function that runs a callback after an event loop iteration's responses;
        transaction markers are written in such callbacks.
        """
        self._after_answers = after_answers
        if self.created is not None:
            self.created.transactions.host.marking.after_answers = after_answers

    def waiting_weight(self) -> int:
        """Return the number of members in rebalances yet to be recorded, plus ten per rebalance."""
        return 0 if self.created is None else self.created.history.waiting_weight

    async def stop_serving(self) -> None:
        """Answer the pending requests with NOT_COORDINATOR."""
        if self.created is not None:
            await self.created.stop_serving()

    async def close(self) -> None:
        if self.created is not None:
            await self.created.close()

    def _has_state(self) -> bool:
        topics = self._topics
        if topics.disk.data.was_clean:
            return any(topics.get(name) is not None for name in _STATE)
        # After an unclean stop, a partition of any topic may have an open transaction.
        return bool(topics.all())

    def _create(self) -> "Coordinators":
        made = self._make()
        if self._after_answers is not None:
            made.transactions.host.marking.after_answers = self._after_answers
        return made


class HandlerLoading:
    """Imports handlers and the coordinators on another thread, before their first request."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        has_module = MODULE in sys.modules
        self._loaded = {key for key in SERVED if has_module and registered(key) is not None}
        """Keys of the APIs whose handlers and coordinators have been imported."""

    def is_needed(self, key: int) -> bool:
        served = SERVED.get(key)
        return served is not None and served.is_coordinated and key not in self._loaded

    async def wait_loaded(self, key: int) -> None:
        loop = asyncio.get_running_loop()
        handler = SERVED[key].module
        modules = [MODULE]
        if handler in _JOINING or handler in _SHARING:
            modules.append(_MEMBERSHIPS)
        if handler in _SHARING:
            modules.append(_SHARE)
        for module in modules:
            await loop.run_in_executor(self._executor, importlib.import_module, module)
        # All APIs of the module are loaded together, so that a member's first Heartbeat does not
        # wait for an import.
        siblings = [other for other, api in SERVED.items() if api.module == SERVED[key].module]
        for sibling in siblings:
            await loop.run_in_executor(self._executor, SERVED[sibling].load, sibling)
        self._loaded.update(siblings)
