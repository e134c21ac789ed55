"""What happened in the groups of this broker, to be asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

from broker.core.group.events import Event
from broker.core.group.requests import Now
from broker.core.history.model import HistoryRecord

Listener: TypeAlias = Callable[[HistoryRecord], None]

SIZE_DEFAULT: Final = 100


class RebalanceHistory:
    """Watches all groups and keeps the last records of each."""

    def __init__(self, size: int = SIZE_DEFAULT) -> None:
        """`size` is how many records are kept of a group."""
        self._size = size
        self._listeners: list[Listener] = []

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        """As a GroupObserver."""

    def records(self, group_id: str, last: int | None = None) -> list[HistoryRecord]:
        """The `last` records of a group, oldest first, all that there are by default; a rebalance
        that runs comes last, with the outcome "running".
        """
        del group_id, last
        return []

    def groups(self) -> Iterable[str]:
        """Ids of all groups that something is known of."""
        return ()

    def add_listener(self, listener: Listener) -> None:
        """Have every record told once, when it is complete."""
        self._listeners.append(listener)
