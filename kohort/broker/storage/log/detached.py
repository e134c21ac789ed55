"""Questions to a log that another thread answers, while the log goes on being appended to.

A log belongs to one thread. What another one reads are twins of its segments: they share the files,
know what was known when they were made, and keep what they learn to themselves (which bytes are
verified, where a batch starts, what the latest timestamp is) until the log's thread takes it over.
What lies below the end of a log does not change, with two exceptions: retention and compaction take
segments away, and a file of the same name may come in their place. An answer that was read from
such a segment is void.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.segment.segment import LogSegment

T = TypeVar("T")


class Detached(Generic[T]):
    """One question. Made, and taken over, in the log's thread; `run` is for any thread."""

    def __init__(
        self, directory: str, segments: Sequence[LogSegment], ask: Callable[[list[LogSegment]], T]
    ) -> None:
        self._directory = directory
        self._ask = ask
        self._twins = [(segment, segment.twin()) for segment in segments]

    def run(self) -> T:
        """The answer. Raises StorageError and CorruptBatchError."""
        try:
            return self._ask([twin for _, twin in self._twins])
        except OSError as error:
            raise StorageError(f"{self._directory} cannot be read: {error}") from error

    @property
    def is_void(self) -> bool:
        """Whether a segment went away: whatever `run` returned or raised may not be true."""
        return any(segment.is_deleted for segment, _ in self._twins)

    def take_over(self) -> None:
        """Let the log know what was learnt on the way; not if it is void."""
        for segment, twin in self._twins:
            segment.learn_from(twin)
