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
    """The purgatory is full: the operation is answered as at its deadline."""
    SHUTDOWN = auto()
    """The broker is stopping: answer with the available data."""


class DelayedOperation(TimerEntry, ABC):
    """Base class of delayed requests, with a subclass for each kind: DelayedFetch, DelayedProduce.

    The purgatory calls exactly one of `on_complete` and `on_cancelled`, once; and `on_failed` once
    if the operation's own code raises, even after `on_complete` has begun.
    """

    __slots__ = ("held_bytes", "is_completed", "owner", "watch_keys")

    kind: ClassVar[str]
    """Name in the metrics: Fetch, Produce, DeleteRecords ..."""

    def __init__(self, *, owner: Hashable | None = None, held_bytes: int = 0) -> None:
        """`owner` is the connection whose quota the operation uses, `held_bytes` the memory that it
        keeps allocated.
        """
        super().__init__()
        self.owner = owner
        self.held_bytes = held_bytes
        self.watch_keys: tuple[Hashable, ...] = ()
        """The keys under which the operation waits; set by the purgatory."""
        self.is_completed = False
        """Answered, failed or cancelled; set by the purgatory."""

    @abstractmethod
    def try_complete(self, key: Hashable | None = None) -> bool:
        """Whether the condition is satisfied. Must not have effects that a second call would
        repeat.

        `key` is the changed key, so that the operation can keep a running total instead of a sum
        over all keys; None requires a full check.
        """

    @abstractmethod
    def on_complete(self, completion: Completion) -> None:
        """Execute the request with the available data, and answer it."""

    @abstractmethod
    def on_failed(self, error: Exception) -> None:
        """Answer the request with UNKNOWN_SERVER_ERROR, unless `on_complete` has answered it."""

    def on_cancelled(self) -> None:
        """Release resources; the client has disconnected, so no response is needed."""
        return
