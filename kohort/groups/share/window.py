"""A share-partition: the states of the records between its start and end offset (KIP-932).

The window does no I/O. Its caller reads the log, appends changes to the state topic and sets one
timer:

    headers = headers of the log from `window.position` on
    acquisition = window.acquire(member_id, now_ms, headers, max_records=500, ...)

    error = window.acknowledge(member_id, now_ms, batches)      # and/or release_all, on_deadline
    write = window.take_write()                                 # None if nothing is to be stored
    ... append write.change ...
    window.written(write)  or  window.failed(write, now_ms)

Until `written` or `failed` is called, the offsets that a write has changed belong to nobody:
`acquire` skips them, `acknowledge` refuses them, and the start offset does not move past them.

If the group has a dead-letter queue (KIP-1191), rejected records and those released at the delivery
limit become Archiving, which keeps the start offset from advancing. Once this state is durable,
`take_dead_letters` returns them, also after a restart; the caller appends their dead letters and
then calls `archive`.

After each call `next_deadline_ms`, `position` and `can_acquire` may have changed.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from kohort.groups.share.acknowledgements import (
    DEAD_LETTER,
    LOCK_TIMEOUT,
    SESSION_END,
    AcknowledgementError,
    Acknowledger,
    AcknowledgeType,
    Change,
    are_valid,
    state_after,
)
from kohort.groups.share.acquire import (
    NOTHING,
    AcquiredRange,
    AcquireMode,
    Acquirer,
    Acquisition,
    LogBatch,
)
from kohort.groups.share.in_flight import ACQUIRED, ARCHIVING, AVAILABLE, SKIPPED, InFlight
from kohort.groups.share.segments import Lock, Segment
from kohort.groups.share.states import RecordState, StateBatch, StateWrite, joined
from kohort.protocol.messages.share_acknowledge import AcknowledgementBatch

__all__ = [
    "AcknowledgeType",
    "AcknowledgementError",
    "AcquireMode",
    "AcquiredRange",
    "Acquisition",
    "DeadLetters",
    "LogBatch",
    "PendingWrite",
    "Window",
    "WindowSettings",
    "are_valid",
]


class WindowSettings(NamedTuple):
    """Settings of the group. A changed setting applies when it is next used."""

    lock_duration_ms: int = 30_000
    delivery_count_limit: int = 5
    max_record_locks: int = 2_000
    renew_enabled: bool = True
    has_dead_letters: bool = False
    """Whether the group has a dead-letter queue."""

    @property
    def archived(self) -> RecordState:
        """The state of rejected records, and of those released at the delivery count limit."""
        return ARCHIVING if self.has_dead_letters else RecordState.ARCHIVED


class DeadLetters(NamedTuple):
    """Consecutive records for the dead-letter queue."""

    first_offset: int
    last_offset: int
    """Inclusive."""
    delivery_count: int
    cause: int
    """REJECT; for a release at the delivery count limit RELEASE, LOCK_TIMEOUT or SESSION_END. After
    a restart, as in Kafka, it is guessed from the count: RELEASE at the limit, REJECT below."""
    member_id: str | None
    """The member that had acquired the records; None after a restart."""


_NOBODY: Final = Lock("", 0, 0)


class PendingWrite:
    """A change that is to be appended to the state topic."""

    __slots__ = ("change", "parts")

    def __init__(self) -> None:
        self.parts: list[Change] = []
        """Changes of offset ranges, the oldest first."""
        self.change = StateWrite(-1, -1, ())
        """The changes as they are stored; set by `Window.take_write`."""


class Window:
    """The records in flight of one share-partition."""

    def __init__(
        self, settings: WindowSettings, start_offset: int, batches: Iterable[StateBatch] = ()
    ) -> None:
        """Create the window from its stored state; offsets in no batch are Available again."""
        self.settings = settings
        """The caller replaces this object when the group's settings change."""
        self._in_flight = InFlight(start_offset, batches)
        self._open = PendingWrite()
        """Collects changes until `take_write`."""
        self._writes: list[PendingWrite] = []
        """Writes that `take_write` has returned, and whose result is not known yet."""
        limit = settings.delivery_count_limit
        self._dead_letters = [
            DeadLetters(
                segment.first,
                segment.last,
                segment.count,
                AcknowledgeType.RELEASE if segment.count >= limit else AcknowledgeType.REJECT,
                None,
            )
            for segment in self._in_flight.segments.items
            if segment.state is ARCHIVING
        ]

    @property
    def start_offset(self) -> int:
        """The first offset that is not finished."""
        return self._in_flight.start

    @property
    def end_offset(self) -> int:
        """The last offset ever acquired; `start_offset` - 1 if the window is empty."""
        return self._in_flight.end

    @property
    def delivery_complete_count(self) -> int:
        """Number of finished offsets at or above the start offset."""
        return self._in_flight.complete

    @property
    def position(self) -> int:
        """The offset to read the log from: the lowest Available one, or the end offset + 1."""
        return self._in_flight.position

    @property
    def can_acquire(self) -> bool:
        """Whether a fetch should read the partition: an offset is Available, or the window is
        below the lock limit. The log may have nothing at `position`.
        """
        in_flight = self._in_flight
        return in_flight.available > 0 or in_flight.size < self.settings.max_record_locks

    @property
    def next_deadline_ms(self) -> int | None:
        """When to call `on_deadline`; None without locks. May be early, never late."""
        return self._in_flight.next_deadline_ms

    @property
    def is_idle(self) -> bool:
        """Whether nobody has a lock, and nothing is being written or archived: the window may be
        unloaded.
        """
        in_flight = self._in_flight
        return not (in_flight.locks or in_flight.archiving or self._writes or self._open.parts)

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

        `log` has the headers of the batches read at `position`, in offset order: the first batch
        contains `position` or is the first one after it. If nothing is acquired but `position` has
        changed, it is now after aborted or missing offsets: read again from there.
        """
        if not log:
            return NOTHING
        in_flight = self._in_flight
        self._skip_missing(log[0].first_offset)
        settings = self.settings
        acquirer = Acquirer(
            in_flight,
            log,
            Lock(member_id, now_ms, now_ms + settings.lock_duration_ms),
            limit=settings.delivery_count_limit,
            record_limit=mode is AcquireMode.RECORD_LIMIT,
            batch_size=batch_size,
        )
        return acquirer.run(max_records, settings.max_record_locks - in_flight.size)

    def _skip_missing(self, first_offset: int) -> None:
        """Archive all Available offsets before `first_offset`: the log does not have them."""
        in_flight = self._in_flight
        if in_flight.position >= min(first_offset, in_flight.end + 1):
            return
        items = in_flight.segments.items
        index = in_flight.segments.index(in_flight.position)
        while index < len(items) and (segment := items[index]).first < first_offset:
            if segment.state is AVAILABLE and segment.write is None:
                last = min(segment.last, first_offset - 1)
                index = in_flight.change(index, segment.first, last, SKIPPED, segment.count + 1)
            index += 1
        in_flight.advance()

    def acknowledge(
        self, member_id: str, now_ms: int, batches: Sequence[AcknowledgementBatch]
    ) -> AcknowledgementError | None:
        """Apply the acknowledgements of one request, for which `are_valid` is true. None if all
        were applied; otherwise nothing has changed.
        """
        settings = self.settings
        acknowledger = Acknowledger(
            self._in_flight,
            member_id,
            self._open,
            limit=settings.delivery_count_limit,
            archived=settings.archived,
            renewed_until_ms=now_ms + settings.lock_duration_ms if settings.renew_enabled else None,
        )
        error = acknowledger.run(batches)
        self._open.parts += acknowledger.changes
        return error

    def release_all(self, member_id: str) -> None:
        """Release the records that a member has locked: its session ended."""
        for write in (*self._writes, self._open):
            for part in write.parts:
                if part.lock.member_id == member_id:
                    part.lock.has_ended = True
        locks = {lock for lock in self._in_flight.locks if lock.member_id == member_id}
        self._release(locks, SESSION_END)

    def on_deadline(self, now_ms: int) -> int:
        """Release the records whose lock has ended; return their number."""
        due = {lock for lock in self._in_flight.locks if lock.deadline_ms <= now_ms}
        count = sum(lock.held for lock in due)
        self._release(due, LOCK_TIMEOUT)
        self._in_flight.recompute_deadline()
        return count

    def _release(self, locks: set[Lock], cause: int) -> None:
        """Release the offsets that are Acquired by `locks`; dead letters state the `cause`."""
        if not locks:
            return
        segments = self._in_flight.segments
        limit, archived = self.settings.delivery_count_limit, self.settings.archived
        write = self._open
        for segment in segments.items:
            if segment.lock not in locks:
                continue
            first, last, count, lock = segment.first, segment.last, segment.count, segment.lock
            assert lock is not None
            state = state_after(AcknowledgeType.RELEASE, count, limit, archived)
            write.parts.append(Change(first, last, state, count, lock, cause))
            self._in_flight.change_whole(segment, state, write)
        segments.join(0, len(segments.items))

    def log_start_moved(self, log_start_offset: int) -> None:
        """Forget offsets that are no longer in the log. To be called before the log is read."""
        if log_start_offset > self._in_flight.start:
            self._in_flight.drop_below(log_start_offset)

    def take_write(self) -> PendingWrite | None:
        """Return the changes since the last call as one write; None if there are none."""
        write = self._open
        if not write.parts:
            return None
        self._open = PendingWrite()
        start = self._in_flight.start
        batches = joined([part[:4] for part in sorted(write.parts, key=_first_offset)])
        write.change = StateWrite(start, self._in_flight.complete, batches)
        self._writes.append(write)
        return write

    def written(self, write: PendingWrite) -> None:
        """Process a durable write: its offsets may be acquired again, and the start may move."""
        self._writes.remove(write)
        self._end_write(write)
        self._dead_letters += [
            DeadLetters(first, last, count, cause, lock.member_id)
            for first, last, state, count, lock, cause in write.parts
            if state is ARCHIVING
        ]

    def failed(self, write: PendingWrite, now_ms: int) -> None:
        """Process a failed write: acknowledged records are Acquired again, or released if their
        lock has ended; records released by `release_all` and `on_deadline` stay released. The
        state topic lacks these releases, so its next record must be a snapshot
        (`StateWriter.failed`).
        """
        self._writes.remove(write)
        limit, archived = self.settings.delivery_count_limit, self.settings.archived
        for part in write.parts:
            first, last, state, count, lock, cause = part
            if not part.stands:
                if not lock.has_ended and lock.deadline_ms > now_ms:
                    self._in_flight.undo(first, last, write, ACQUIRED, lock)
                    continue
                state = state_after(AcknowledgeType.RELEASE, count, limit, archived)
                self._in_flight.undo(first, last, write, state, None)
                cause = SESSION_END if lock.has_ended else LOCK_TIMEOUT
            if state is ARCHIVING:
                self._dead_letters.append(DeadLetters(first, last, count, cause, lock.member_id))
        self._end_write(write)

    def take_dead_letters(self) -> Sequence[DeadLetters]:
        """Return the records that have become Archiving, in the order of these changes."""
        taken, self._dead_letters = self._dead_letters, []
        return taken

    def archive(self, first_offset: int, last_offset: int) -> None:
        """Archive the Archiving offsets of a range: dead letters were appended, or cannot be."""
        in_flight, write = self._in_flight, self._open
        items = in_flight.segments.items
        index = max(0, in_flight.segments.index(first_offset))
        while index < len(items) and (segment := items[index]).first <= last_offset:
            first, last = max(first_offset, segment.first), min(last_offset, segment.last)
            if segment.state is ARCHIVING and segment.write is None and first <= last:
                count = segment.count
                state = RecordState.ARCHIVED
                write.parts.append(Change(first, last, state, count, _NOBODY, DEAD_LETTER))
                index = in_flight.change(index, first, last, state, count, None, write)
            index += 1

    def _end_write(self, write: PendingWrite) -> None:
        batches = write.change.batches
        self._in_flight.written(batches[0].first_offset, batches[-1].last_offset, write)
        self._in_flight.advance()

    @property
    def available_count(self) -> int:
        """Number of offsets that can be acquired."""
        return self._in_flight.available

    def locks(self) -> Iterable[Lock]:
        """Return the locks that hold offsets."""
        return self._in_flight.locks

    def segments(self, first_offset: int | None = None) -> Iterator[Segment]:
        """Yield the segments in flight from `first_offset` on; they must not be changed."""
        segments = self._in_flight.segments
        index = 0 if first_offset is None else max(0, segments.index(first_offset))
        yield from islice(segments.items, index, None)

    def stored_batches(self) -> list[StateBatch]:
        """Return the whole state for a snapshot, including pending writes. Acquired records are
        listed as they were before this delivery, and not listed if it is their first.
        """
        return self._in_flight.stored_batches()


def _first_offset(part: Change) -> int:
    return part.first_offset
