"""Queries on a log that run in another thread, while the log continues to be appended to.

A log belongs to one thread. Another thread reads copies of its segments, called twins: they share
the files, start with the state of the original, and collect new knowledge (verified bytes, starts
of batches, the latest timestamp), which the log's thread takes over afterwards. Data below the end
of a log does not change, with two exceptions: retention and compaction remove segments, and a file
of the same name may replace them. A result read from such a segment is void.
"""

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.segment.segment import LogSegment

T = TypeVar("T")


class Detached(Generic[T]):
    """A query on copies of a log's segments. The log's thread creates it, any thread may run it."""

    def __init__(
        self, directory: str, segments: Sequence[LogSegment], ask: Callable[[list[LogSegment]], T]
    ) -> None:
        self._directory = directory
        self._ask = ask
        self._twins = [(segment, segment.twin()) for segment in segments]

    def run(self) -> T:
        """Execute the query and return its result. Raises StorageError and CorruptBatchError."""
        try:
            return self._ask([twin for _, twin in self._twins])
        except OSError as error:
            raise StorageError(f"{self._directory} cannot be read: {error}") from error

    @property
    def is_void(self) -> bool:
        """Whether a segment was removed: whatever `run` returned or raised may be wrong."""
        return any(segment.is_deleted for segment, _ in self._twins)

    def take_over(self) -> None:
        """Copy the knowledge that `run` gained to the log's segments; forbidden if `is_void`."""
        for segment, twin in self._twins:
            segment.learn_from(twin)
