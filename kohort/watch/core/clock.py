"""By how much the watcher's clock is ahead of the coordinators'."""

from typing import Final

_COMPARED_MIN: Final = 20
"""Minimum number of batches to compare: at least one of them was probably read soon after it was
written."""


class ClockDifference:
    """Compares this machine's clock with the timestamps of records that are read soon after they
    were written.
    """

    __slots__ = ("_ahead_ms", "_count")

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._count = 0

    def compare(self, now_ms: int, stored_ms: int, batch_count: int = 1) -> None:
        """Note when batches were read, and the timestamp of the last one."""
        ahead_ms = now_ms - stored_ms
        self._ahead_ms = min(self._ahead_ms, ahead_ms) if self._count else ahead_ms
        self._count += batch_count

    @property
    def ahead_ms(self) -> int | None:
        """The difference, or a little more, since records take a while until they are read; None
        until enough were compared.
        """
        return self._ahead_ms if self._count >= _COMPARED_MIN else None
