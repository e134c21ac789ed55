"""The interface between the purgatory and a request that cannot be answered yet."""

from abc import ABC, abstractmethod
from collections.abc import Hashable
from enum import Enum, auto
from typing import ClassVar

from kohort.broker.core.timing_wheel import TimerEntry


class Completion(Enum):
    SATISFIED = auto()
    EXPIRED = auto()
    REFUSED = auto()
    """The purgatory is full: answer now, as if the deadline had passed."""
    SHUTDOWN = auto()
    """The broker is stopping: answer with the available data."""


class DelayedOperation(TimerEntry, ABC):
    """Base class of delayed requests, with a subclass for each kind: DelayedFetch, DelayedProduce.

    The purgatory calls `on_complete` or `on_cancelled`, once. If `try_complete` or `on_complete`
    raises, it calls `on_failed`.
    """

    __slots__ = ("held_bytes", "is_completed", "owner", "watch_keys")

    kind: ClassVar[str]
    """Name in the metrics: Fetch, Produce, DeleteRecords ..."""

    def __init__(self, *, owner: Hashable | None = None, held_bytes: int = 0) -> None:
        """`owner` is the connection against whose limits the operation counts, `held_bytes` the
        memory that the operation keeps allocated.
        """
        super().__init__()
        self.owner = owner
        self.held_bytes = held_bytes
        self.watch_keys: tuple[Hashable, ...] = ()
        """The keys under which the operation waits; set by the purgatory."""
        self.is_completed = False
        """Whether the operation was answered, failed or cancelled; set by the purgatory."""

    @abstractmethod
    def try_complete(self, key: Hashable | None = None) -> bool:
        """Whether the request can be answered now. Called repeatedly: effects must be idempotent.

        `key` is the key whose state has changed: an operation may update a running total for it
        instead of checking all its keys. None requires a check of all keys.
        """

    @abstractmethod
    def on_complete(self, completion: Completion) -> None:
        """Answer the request with the available data."""

    @abstractmethod
    def on_failed(self, error: Exception) -> None:
        """Answer the request with UNKNOWN_SERVER_ERROR, unless `on_complete` has answered it."""

    def on_cancelled(self) -> None:
        """Release resources; the client has disconnected, so no response is needed."""
        return
