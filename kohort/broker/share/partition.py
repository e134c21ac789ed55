"""One share-partition at run time: its window, its stored state, and how much to read for it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

from kohort.broker.runtime.clock import Clock
from kohort.broker.share.counts import GroupCounts
from kohort.broker.share.log_read import LogRead
from kohort.broker.share.reports import NOTHING_COUNTED, Counts
from kohort.broker.share.settings import GroupSettings
from kohort.formats.text import shown
from kohort.groups.share.state_log import SharePartitionKey, StateWriter, StoredState
from kohort.groups.share.window import AcquiredRange, Window
from kohort.protocol.errors import KafkaError

OnStored: TypeAlias = Callable[[KafkaError | None], None]
"""Called when a change is durable, or with the error if it could not be appended."""

RECORD_BYTES_GUESS: Final = 100
"""Assumed size of a record before anything was read."""
CHUNK_BYTES_MIN: Final = 64 * 1024
CHUNK_BYTES_MAX: Final = 1 << 20
"""Maximum bytes of one read, which take about a millisecond."""


class SharePartition:
    """A share-partition that is initialized; also the key under which fetches wait for it."""

    __slots__ = (
        "_stored",
        "_window",
        "_writer",
        "counts",
        "determining",
        "held_offset",
        "held_since_ms",
        "is_gone",
        "key",
        "own_counts",
        "record_bytes",
        "reset_policy",
        "snapshot_offset",
        "state",
        "state_epoch",
        "state_partition",
        "used_ms",
        "waiting",
    )

    def __init__(
        self,
        key: SharePartitionKey,
        state: StoredState | None,
        partition: int,
        counts: GroupCounts,
    ) -> None:
        """`partition` is the state topic's partition that stores this share-partition's state."""
        self.key = key
        self.counts = counts
        """The counts of its group."""
        self.own_counts: Mapping[str, int] = NOTHING_COUNTED
        self.state = state
        """The stored state as of the last load or unload of the window; None until the start
        offset is determined.
        """
        self.state_partition = partition
        self.snapshot_offset: int | None = None
        """Offset of its last snapshot in the state topic; None without one."""
        self.record_bytes: float = RECORD_BYTES_GUESS
        """Average size of the records last read."""
        self.reset_policy: int | None = None
        """The policy that determined the start offset. None if the offset was set explicitly or
        before the broker was started, and once records have been acquired.
        """
        self.state_epoch = 0 if state is None else state.state_epoch
        """The group's epoch when the state was initialized, or its start offset last altered."""
        self.determining: object = None
        """Token of the current lookup of the start offset; None if there is none."""
        self.waiting: tuple[OnStored, ...] = ()
        """Callbacks of offset alterations that wait until the start offset is determined."""
        self.is_gone = False
        """Whether its state was deleted."""
        self.used_ms = 0
        """Monotonic time at which the window was last used."""
        self.held_offset: int | None = None
        """Offset of the in-flight record that holds back the start offset; None without one."""
        self.held_since_ms = 0
        """Monotonic time at which `held_offset` took its present value."""
        self._window: Window | None = None
        self._stored: tuple[Window, int] | None = None
        """Window and state epoch that `undo_restart` restores, while a snapshot is written."""
        self._writer: StateWriter | None = None

    def __repr__(self) -> str:
        return f"SharePartition({shown(str(self.key))})"

    def note_acquired(self, ranges: Iterable[AcquiredRange]) -> None:
        """Add acquired records to the counts of the group and of the share-partition."""
        of_group, own = self.counts, self.changing_counts
        for first, last, delivery_count in ranges:
            count = last - first + 1
            of_group.deliveries += count
            own["deliveries"] += count
            if delivery_count > 1:
                of_group.redeliveries += count
                own["redeliveries"] += count

    @property
    def changing_counts(self) -> Counts:
        if not isinstance(self.own_counts, dict):
            self.own_counts = dict(NOTHING_COUNTED)
        return self.own_counts

    def note_start(self, clock: Clock) -> None:
        """Update `held_offset` and `held_since_ms`; to be called after the window has changed."""
        window = self._window
        if window is not None:
            held = window.start_offset if window.start_offset <= window.end_offset else None
            if held != self.held_offset:
                self.held_offset, self.held_since_ms = held, clock.monotonic_ms()

    @property
    def window(self) -> Window | None:
        """The window, None unless it is loaded."""
        return self._window

    @property
    def writer(self) -> StateWriter:
        assert self._writer is not None, "not loaded"
        return self._writer

    def load(self, settings: GroupSettings) -> Window | None:
        """Return the window with these settings; None until its start offset is determined."""
        window = self._window
        if window is None:
            state = self.state
            if state is None:
                return None
            window = self._window = Window(settings.window, state.start_offset, state.batches)
            self._writer = StateWriter(self.key, state)
            state.batches = []  # The window has its own copy.
        elif window.settings is not settings.window:
            window.settings = settings.window
        return window

    def unload(self) -> None:
        """Free the window if it is idle; its stored state remains."""
        window = self._window
        if window is None or self._stored is not None:
            return
        if window.is_idle and self.writer.is_complete:
            self.state = self.writer.stored(window)
            self._window = self._writer = None

    def begin(self, state: StoredState) -> None:
        """Set the state of a share-partition whose start offset has been determined."""
        self.state, self.state_epoch = state, state.state_epoch

    def take_waiting(self) -> tuple[OnStored, ...]:
        """Remove and return the callbacks of offset alterations that wait for the start offset."""
        waiting, self.waiting = self.waiting, ()
        return waiting

    def forget_state(self) -> None:
        """Discard the state set by `begin`, because it could not be stored."""
        self.state = self._window = self._writer = self._stored = None

    def restart(self, window: Window, state_epoch: int) -> None:
        """Replace the window by `window`, whose snapshot is not durable yet; all locks end."""
        if self._stored is None:
            assert self._window is not None
            self._stored = self._window, self.state_epoch
        self._window, self.state_epoch = window, state_epoch

    def restarted(self, window: Window, state_epoch: int) -> None:
        """Make a `restart` final: undoing a later one restores the `window` of this one."""
        self._stored = None if self._window is window else (window, state_epoch)

    def undo_restart(self, window: Window) -> None:
        """Restore the last stored window, because the snapshot of `window` could not be stored."""
        if self._window is window and self._stored is not None:
            self._window, self.state_epoch = self._stored
            self._stored = None
            self.writer.undo_alteration(self.state_epoch)

    def chunk_bytes(self, record_count: int) -> int:
        """Return the bytes to read for a number of records."""
        wanted = int(record_count * self.record_bytes * 1.25)
        return min(max(wanted, CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)

    def note_read(self, read: LogRead) -> None:
        if read.batches:
            count = read.next_offset - read.batches[0].first_offset
            self.record_bytes = len(read.data) / max(count, 1)
