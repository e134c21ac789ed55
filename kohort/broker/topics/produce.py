"""Delays the response to a Produce until the high watermarks have reached its batches' ends."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from kohort.broker.core.delayed_operation import Completion, DelayedOperation
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.topics.partition import Partition
from kohort.protocol.errors import NO_ERROR, ErrorCode


@dataclass(slots=True, eq=False)
class PendingAppend:
    """A batch in the log that is not acknowledged yet."""

    partition: Partition
    next_offset: int
    """The offset that the high watermark must reach."""

    @property
    def is_decided(self) -> bool:
        partition = self.partition
        return partition.failure is not None or partition.high_watermark >= self.next_offset

    @property
    def error(self) -> ErrorCode:
        """The outcome; REQUEST_TIMED_OUT if the high watermark has not reached `next_offset`."""
        failure = self.partition.failure
        if failure is not None:
            return failure.code
        return NO_ERROR if self.is_decided else ErrorCode.REQUEST_TIMED_OUT


class DelayedProduce(DelayedOperation):
    """An acks=all request that waits until its appends are flushed to disk."""

    __slots__ = ("_pending", "errors")

    kind: ClassVar[str] = "Produce"

    def __init__(self, pending: list[PendingAppend], *, owner: Hashable) -> None:
        super().__init__(owner=owner, held_bytes=200 * len(pending))
        self._pending = pending
        self.errors: Deferred[list[ErrorCode]] = Deferred()
        """The error, or NONE, of each pending append; set when all are acknowledged or failed, or
        at the deadline.
        """

    @property
    def keys(self) -> list[Partition]:
        return [append.partition for append in self._pending]

    def try_complete(self, key: Hashable | None = None) -> bool:
        """Whether the high watermark has reached each append's end, or the partition failed."""
        del key
        return all(append.is_decided for append in self._pending)

    def on_complete(self, completion: Completion) -> None:
        """Return the errors of all partitions to the request."""
        del completion
        self.errors.set_result([append.error for append in self._pending])

    def on_failed(self, error: Exception) -> None:
        """Fail the request with ``error``, unless `on_complete` has returned the errors."""
        if not self.errors.is_done:
            self.errors.set_exception(error)
