"""Where a watcher stores the history, so that a later run, or another watcher, continues it."""

from typing import Protocol

from kohort.watch.core.backlog import Json


class StoreError(Exception):
    """Nothing can be stored; the text is the reason."""


class StoreDeniedError(StoreError):
    """The user has no right to the topic of the history, or to the group of its watchers."""


class StoreOutageError(StoreError):
    """Nothing can be stored at present."""


class HistoryStore(Protocol):
    """Takes the records that were made, in the order of each group, and stores those that it does
    not have. A record that was offered and not stored is made again by the next run.
    """

    @property
    def is_full(self) -> bool:
        """Whether no more should be offered before another watcher has stored some."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why nothing can be stored at present."""
        ...

    def offer(self, record: Json) -> Json:
        """Take a record; return it with the sequence number that the store continues with."""
        ...

    def flush(self) -> None:
        """Store what was offered. Raises StoreError."""
        ...
