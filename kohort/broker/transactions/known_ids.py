"""Index of the transactional ids: all, those with an open transaction, and those that are idle."""

from collections.abc import Collection, Iterable

from kohort.broker.core.transaction.records import NEVER_MS
from kohort.broker.core.transaction.transactional_id import TransactionalId


class KnownIds:
    """Index of the ids, each changed by its own steps only; see `note_state`."""

    def __init__(self) -> None:
        self._ids: dict[str, TransactionalId] = {}
        self._open: dict[str, TransactionalId] = {}
        """Ids with an open transaction, in the order in which their transactions began."""
        self._idle: dict[str, None] = {}
        """Idle ids, the longest idle first; some may have a tombstone being written."""

    def __len__(self) -> int:
        return len(self._ids)

    def get(self, name: str) -> TransactionalId | None:
        """Return an id; None if it is unknown."""
        return self._ids.get(name)

    def add(self, txn: TransactionalId) -> None:
        self._ids[txn.transactional_id] = txn

    def remove(self, name: str) -> None:
        """Drop an id whose tombstone is durable. It is not open: only an idle one is forgotten."""
        self._ids.pop(name, None)
        self._idle.pop(name, None)

    def note_state(self, txn: TransactionalId) -> None:
        """Update an id's place, after a record of it became durable or failed."""
        name = txn.transactional_id
        self._idle.pop(name, None)
        if txn.is_idle:
            self._idle[name] = None
        if txn.is_open:
            self._open.setdefault(name, txn)
        else:
            self._open.pop(name, None)

    def sort_open(self) -> None:
        """Sort open ids by the start of their transactions, because loading has another order."""
        self._open = dict(sorted(self._open.items(), key=lambda item: _start_ms(item[1])))

    def names(self) -> list[str]:
        """Return a copy of all names, for callers that iterate over several loop iterations."""
        return list(self._ids)

    def all(self) -> Collection[TransactionalId]:
        """Return a view of all ids; do not use it across an await."""
        return self._ids.values()

    def open(self) -> Collection[TransactionalId]:
        """Return a view of the ids with an incomplete transaction; not to be kept across awaits."""
        return self._open.values()

    def idle_names(self) -> list[str]:
        """Return the names of ids without a transaction, the longest idle first."""
        return list(self._idle)

    @property
    def idle_count(self) -> int:
        return len(self._idle)

    def longest_idle(self) -> TransactionalId | None:
        """Return the removable id that has been idle for the longest time, or None."""
        idle: Iterable[TransactionalId] = (self._ids[name] for name in self._idle)
        return next((txn for txn in idle if txn.is_idle), None)


def _start_ms(txn: TransactionalId) -> int:
    return NEVER_MS if txn.record is None else txn.record.start_ms
