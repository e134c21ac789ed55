"""The missing markers of a decided transaction: requested together, completed one by one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kohort.broker.core.transaction.requests import TopicPartition
from kohort.protocol.errors import ErrorCode

SUPERSEDED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)
"""The partition has a later epoch's marker, which ends the transaction as well."""

_SETTLED: Final = SUPERSEDED | {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
"""The partition has its marker or a later one, or was deleted."""


class MissingMarkers:
    """The partitions of one transaction whose markers are missing. There is one only from the
    decision on, because ids are very many.
    """

    __slots__ = ("_awaited", "_missing")

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self._missing = dict.fromkeys(partitions)
        self._awaited = 0
        """Number of requested markers whose outcome is open."""

    @property
    def is_awaiting(self) -> bool:
        """Whether the outcome of a requested marker is open."""
        return self._awaited > 0

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions without a marker, in the order in which they were added."""
        return tuple(self._missing)

    def ask(self) -> tuple[TopicPartition, ...]:
        """Request all missing markers, and await an outcome for each."""
        assert not self._awaited
        self._awaited = len(self._missing)
        return tuple(self._missing)

    def note(self, partition: TopicPartition, error: ErrorCode) -> None:
        """Record the outcome of a requested marker."""
        self._awaited -= 1
        if error in _SETTLED:
            self._missing.pop(partition, None)
