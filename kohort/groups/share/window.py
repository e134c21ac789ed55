"""A share-partition: the states of the records between its start and end offset (KIP-932).

The window is stepped by the shell, which reads the log, appends changes to the state topic and
sets one timer:

    headers = headers of the log from `window.position` on
    acquisition = window.acquire(member_id, now_ms, headers, max_records=500, ...)

    error = window.acknowledge(member_id, now_ms, batches)      # and/or release_all, on_deadline
    write = window.take_write()                                 # None if nothing is to be stored
    ... append write.change ...
    window.written(write)  or  window.failed(write, now_ms)

Offsets that a write has changed belong to nobody until `written` or `failed` is called, and the
start moves only then: until then they are skipped by `acquire` and refused by `acknowledge`.
After each call `next_deadline_ms`, `position` and `can_acquire` may have changed.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

from kohort.groups.share.states import StateBatch, StateWrite
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.share_acknowledge import AcknowledgementBatch


class AcquireMode(IntEnum):
    BATCH_OPTIMIZED = 0
    """Whole producer batches until MaxRecords is reached."""
    RECORD_LIMIT = 1
    """At most MaxRecords records."""


class AcknowledgeType(IntEnum):
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class WindowSettings(NamedTuple):
    """Settings of the group. A change applies at its next use."""

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    renew_enabled: bool = True


class LogBatch(NamedTuple):
    """Header of a record batch in the log, data or control."""

    first_offset: int
    last_offset: int
    """Inclusive."""
    is_aborted: bool = False
    """Data of an aborted transaction, and the group reads committed records only."""


class AcquiredRange(NamedTuple):
    first_offset: int
    last_offset: int
    """Inclusive."""
    delivery_count: int


class Acquisition(NamedTuple):
    ranges: Sequence[AcquiredRange]
    """In offset order."""
    record_count: int
    """Offsets that count for MaxRecords, including aborted ones that are not in `ranges`."""


class AcknowledgementError(NamedTuple):
    code: ErrorCode
    message: str | None = None


class PendingWrite:
    """A change that is to be appended to the state topic."""

    __slots__ = ("change",)

    change: StateWrite


def are_valid(
    batches: Sequence[AcknowledgementBatch], *, may_renew: bool, highest_type: int
) -> bool:
    """Check the acknowledgements of a partition without looking at its state; if they are not
    valid, the partition's answer is INVALID_REQUEST without a message.

    `highest_type` is 3 in version 1 of the requests, 4 from version 2 on.
    """
    raise NotImplementedError


class Window:
    """The records in flight of one share-partition."""

    settings: WindowSettings
    """The shell replaces it when the group's settings change."""
    start_offset: int
    """The first offset that is not finished."""
    end_offset: int
    """The last offset ever acquired; `start_offset` - 1 if the window is empty."""
    delivery_complete_count: int
    """Finished offsets at or above the start."""

    def __init__(
        self, settings: WindowSettings, start_offset: int, batches: Iterable[StateBatch] = ()
    ) -> None:
        """Create the window from its stored state; holes between batches are Available again."""
        raise NotImplementedError

    @property
    def position(self) -> int:
        """The offset to read the log from: the lowest Available one, or the end offset + 1."""
        raise NotImplementedError

    @property
    def has_available(self) -> bool:
        """Whether an offset within the window is Available."""
        raise NotImplementedError

    @property
    def can_acquire(self) -> bool:
        """Whether the partition takes part in a fetch: an offset is Available, or the window is
        below the lock limit. Whether the log holds anything at `position` is not known here.
        """
        raise NotImplementedError

    @property
    def next_deadline_ms(self) -> int | None:
        """When to call `on_deadline`; None without locks. May be early, never late."""
        raise NotImplementedError

    @property
    def is_idle(self) -> bool:
        """Whether nobody has a lock and nothing is being written: the window may be unloaded."""
        raise NotImplementedError

    def acquire(
        self,
        member_id: str,
        now_ms: int,
        log: Sequence[LogBatch],
        *,
        max_records: int,
        batch_size: int,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    ) -> Acquisition:
        """Lock records for a member.

        `log` holds the headers of what was read at `position`, in offset order: the first batch
        contains `position` or is the first one after it.
        """
        raise NotImplementedError

    def acknowledge(
        self, member_id: str, now_ms: int, batches: Sequence[AcknowledgementBatch]
    ) -> AcknowledgementError | None:
        """Apply the acknowledgements of one request, which `are_valid`; None if all were applied,
        otherwise nothing has changed.
        """
        raise NotImplementedError

    def release_all(self, member_id: str) -> None:
        """Release the records that a member has locked: its session ended."""
        raise NotImplementedError

    def on_deadline(self, now_ms: int) -> int:
        """Release the records whose lock has ended; return their number."""
        raise NotImplementedError

    def log_start_moved(self, log_start_offset: int) -> None:
        """Forget what the log no longer holds. To be called before the log is read."""
        raise NotImplementedError

    def take_write(self) -> PendingWrite | None:
        """Return the changes since the last call as one write; None if there are none."""
        raise NotImplementedError

    def written(self, write: PendingWrite) -> None:
        """The write is durable: its offsets may be acquired again, and the start may move."""
        raise NotImplementedError

    def failed(self, write: PendingWrite, now_ms: int) -> None:
        """The write has failed: acknowledged records are Acquired again, or released if their lock
        has ended; releases by `release_all` and `on_deadline` stand. The log does not have them,
        so the next write must be a snapshot (`StateWriter.failed`).
        """
        raise NotImplementedError

    def stored_batches(self) -> list[StateBatch]:
        """Return the whole state for a snapshot, with pending writes. Acquired records are in the
        state before their delivery, or absent if this is their first.
        """
        raise NotImplementedError
