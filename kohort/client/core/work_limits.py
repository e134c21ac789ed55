"""Limits on the records that `Consumer.run` holds in memory."""

from __future__ import annotations

from typing import Final, NamedTuple

ROOM_SHARE: Final = 4
"""After a limit was reached, 1/ROOM_SHARE of it must be free before more records are taken, to
avoid taking them one by one."""

FIRST_TAKE: Final = 16
"""How many records are taken before their size is known."""

RECORD_OVERHEAD_BYTES: Final = 500
"""Estimated memory of a record in addition to its bytes."""


class WorkLimits(NamedTuple):
    records: int
    byte_count: int
    """Maximum bytes of the records in memory. The records read last may exceed it."""
    uncommitted: int
    """Maximum records of one partition, finished or not, after the offset that can be committed."""

    def most_held(self, *, once_full: bool) -> tuple[int, int]:
        """Return (records, bytes): more records are taken if at most this much is in memory.
        `once_full`: a limit was reached before.
        """
        share = ROOM_SHARE if once_full else max(self.records, self.byte_count) + 1
        free_records = max(1, self.records // share)
        return self.records - free_records, self.byte_count - max(1, self.byte_count // share)


class BatchLimits(NamedTuple):
    records: int
    wait_ms: int
    """How long an incomplete batch waits for more records, if more can be taken."""
