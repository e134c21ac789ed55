"""Up to where a partition is done, if its records are done in any order.

A position may be committed when everything before it is done. Offsets have gaps of their own (what
compaction took away, markers of transactions), so it is not numbers that are counted, but the
records that were begun, in their order.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from kohort.client.core.offsets import UNKNOWN_EPOCH, OffsetAndMetadata

NOTHING_BEGUN: Final = -1


class DoneOffsets:
    """Offsets of one partition. Memory grows with `open_count`, which the caller bounds."""

    __slots__ = ("_begun", "_done", "last_begun", "position")

    def __init__(self) -> None:
        self._begun: deque[tuple[int, int]] = deque()
        """Offset and leader epoch, from the first that is not done."""
        self._done: set[int] = set()
        """Offsets in `_begun` that are done already."""
        self.last_begun = NOTHING_BEGUN
        self.position: OffsetAndMetadata | None = None
        """Before this everything is done; None as long as nothing has begun. It is there from the
        first record on: committed, it keeps a consumer that begins at the end of a log from passing
        over what it was given and did not finish."""

    @property
    def open_count(self) -> int:
        """How many records lie behind the position: not done, or done and waiting for others."""
        return len(self._begun)

    def begin(self, offset: int, leader_epoch: int) -> None:
        """A record that is going to be handled; offsets rise."""
        assert offset > self.last_begun, "records come in order"
        if self.position is None:
            self.position = OffsetAndMetadata(offset, "", UNKNOWN_EPOCH)
        self.last_begun = offset
        self._begun.append((offset, leader_epoch))

    def finish(self, offset: int) -> None:
        """It is done. Each record is, once."""
        assert offset not in self._done, "done twice"
        self._done.add(offset)
        begun, done = self._begun, self._done
        last: tuple[int, int] | None = None
        while begun and begun[0][0] in done:
            last = begun.popleft()
            done.remove(last[0])
        if last is not None:
            self.position = OffsetAndMetadata(last[0] + 1, "", last[1])
