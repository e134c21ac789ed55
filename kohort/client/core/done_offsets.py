"""Up to which offset a partition is done when its records finish in any order."""

from __future__ import annotations

from collections import deque
from typing import Final

from kohort.client.core.offsets import UNKNOWN_EPOCH, OffsetAndMetadata

NOTHING_BEGUN: Final = -1


class DoneOffsets:
    """Up to which offset one partition is done when its records finish in any order.

    A position may be committed when everything before it is done. Offsets have gaps (compaction,
    transaction markers), so this tracks the started records in order instead of counting offsets.
    Memory grows with `open_count`, which the caller bounds.
    """

    __slots__ = ("_begun", "_done", "_position", "last_begun")

    def __init__(self) -> None:
        self._begun: deque[tuple[int, int]] = deque()
        """Offset and leader epoch of each started record, from the first that is not done."""
        self._done: set[int] = set()
        """Offsets in `_begun` that are done already."""
        self.last_begun = NOTHING_BEGUN
        self._position = (NOTHING_BEGUN, UNKNOWN_EPOCH)

    @property
    def position(self) -> OffsetAndMetadata | None:
        """Everything before this offset is done; None until a record has started. It is set from
        the first record on: when committed, it keeps a consumer that starts at the end of a log
        from skipping records that it was given and did not finish.
        """
        offset, leader_epoch = self._position
        return None if offset < 0 else OffsetAndMetadata(offset, "", leader_epoch)

    @property
    def open_count(self) -> int:
        """How many records after the position are not done, or wait for earlier ones."""
        return len(self._begun)

    def begin(self, offset: int, leader_epoch: int) -> None:
        """Add a record that is about to be handled; offsets must increase."""
        assert offset > self.last_begun, "records come in order"
        if self.last_begun < 0:
            self._position = offset, UNKNOWN_EPOCH
        self.last_begun = offset
        self._begun.append((offset, leader_epoch))

    def finish(self, offset: int) -> None:
        """Mark a record as done, once."""
        begun, done = self._begun, self._done
        if begun[0][0] != offset:
            assert offset not in done, "done twice"
            done.add(offset)
            return
        last = begun.popleft()
        while done and begun[0][0] in done:
            last = begun.popleft()
            done.remove(last[0])
        self._position = last[0] + 1, last[1]
