"""Waiting until the batches of a Produce request are as durable as their partitions require."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

from kohort.broker.core.delayed_operation import Completion, DelayedOperation
from kohort.broker.runtime.later import Later
from kohort.broker.topics.partition import Partition
from kohort.protocol.errors import ErrorCode

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class PendingAppend:
    """A batch in the log that is not acknowledged yet."""

    partition: Partition
    next_offset: int
    """The offset that the high watermark must reach."""
    on_decided: Callable[[ErrorCode], None]
    """Puts the error into the response; called only if it is not NONE."""

    @property
    def is_decided(self) -> bool:
        """Whether the outcome is final."""
        partition = self.partition
        return partition.failure is not None or partition.high_watermark >= self.next_offset


class DelayedProduce(DelayedOperation, Generic[T]):
    """An acks=all request whose partitions are still being forced to disk."""

    __slots__ = ("_answer", "_pending", "_response")

    kind: ClassVar[str] = "Produce"

    def __init__(
        self,
        pending: list[PendingAppend],
        *,
        response: T,
        answer: Later[T],
        owner: Hashable,
    ) -> None:
        """`answer` gets `response` when all is decided; `pending` put their errors into it."""
        super().__init__(owner=owner, held_bytes=200 * len(pending))
        self._pending = pending
        self._response = response
        self._answer = answer

    @property
    def keys(self) -> list[Partition]:
        """Partitions to watch."""
        return [append.partition for append in self._pending]

    def try_complete(self, key: Hashable | None = None) -> bool:
        """Return whether every partition is decided."""
        del key
        return all(append.is_decided for append in self._pending)

    def on_complete(self, completion: Completion) -> None:
        """Answer; partitions that are still undecided have timed out."""
        del completion
        for append in self._pending:
            if append.partition.failure is not None:
                append.on_decided(append.partition.failure.code)
            elif not append.is_decided:
                append.on_decided(ErrorCode.REQUEST_TIMED_OUT)
        self._answer.give(self._response)

    def on_failed(self, error: Exception) -> None:
        """Answer with ``error``, unless it is already answered."""
        if not self._answer.is_done:
            self._answer.fail(error)
