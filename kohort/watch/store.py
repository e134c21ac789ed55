"""Stores a watcher's history, so that a later run, or another watcher, can continue it."""

import json

from kohort.watch.core.backlog import Backlog


class StoreError(Exception):
    """Nothing can be stored; the text is the reason."""


class StoreDeniedError(StoreError):
    """The user is not authorized for the history topic, or for the watchers' consumer group."""


class StoreOutageError(StoreError):
    """Nothing can be stored at present."""


class HistoryStore:
    """Stores a watcher's history records, unless they are stored already. Each group's records must
    be offered in order. Records that were offered but not stored are derived again by the next run.
    """

    def __init__(self) -> None:
        self._backlog = Backlog()
        self.offer = self._backlog.offer

    @property
    def is_full(self) -> bool:
        """Whether to stop offering records until the watcher that writes them has caught up."""
        return False

    @property
    def trouble(self) -> str | None:
        """Why nothing can be stored at present; None if there is no such reason."""
        return None

    def flush(self) -> None:
        """Store the offered records. Raises StoreError."""
        raise NotImplementedError

    def _note(self, text: bytes) -> None:
        """Track a record that is stored already. Raises ValueError if `text` is not a record."""
        try:
            self._backlog.note(json.loads(text))
        except (TypeError, KeyError, RecursionError) as error:
            raise ValueError("not a record of a history") from error
