"""All share-partitions: their state in memory and in the state topic, and their timers.

Requests and timers change a window on the event loop. The changes are appended to the state topic
at the end of the iteration; until they are durable, the changed records are neither available nor
locked by a member. Waiting fetches are checked again whenever their share-partition may have
records for them.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from kohort.broker.config.share import EARLIEST, LATEST
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.runtime.clock import Clock
from kohort.broker.runtime.deferred import Tasks
from kohort.broker.runtime.slices import RoundRobin, Slice, Work
from kohort.broker.share.counts import ShareCounts
from kohort.broker.share.dead_letters import DeadLetterQueue
from kohort.broker.share.initialization import Initializations, NewPartition
from kohort.broker.share.partition import OnStored, SharePartition
from kohort.broker.share.reports import Outcome, Reports
from kohort.broker.share.settings import GroupSettings
from kohort.broker.share.state_topic import StateTopic
from kohort.broker.topics.partition import Partition
from kohort.groups.events import Event, SharePartitionsForgotten, SharePartitionsInitialized
from kohort.groups.requests import Now
from kohort.groups.share.state_log import (
    SharePartitionKey,
    StateRecord,
    StoredState,
    initialized,
    tombstone,
)
from kohort.groups.share.window import DeadLetters, PendingWrite, Window
from kohort.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

PARTITIONS_MAX: Final = 100_000
"""Maximum number of share-partitions, of about 2 KB each; further ones are not initialized, and
their records not delivered."""

UNDETERMINED: Final = -1
"""The start offset in a state that Kafka writes when it initializes a share-partition."""


class SharePartitions:
    """The share-partitions that groups have initialized."""

    observed: Collection[type[Event]] = (SharePartitionsInitialized, SharePartitionsForgotten)

    def __init__(
        self,
        topic: StateTopic,
        *,
        find: Callable[[bytes, int], Partition | None],
        settings: Callable[[str], GroupSettings],
        updates_per_snapshot: Callable[[], int],
        dead_letters: DeadLetterQueue,
        counts: ShareCounts,
        purgatory: Purgatory,
        clock: Clock,
    ) -> None:
        """`find` returns a partition of a topic, None if it does not exist; `settings` returns the
        settings of a group.
        """
        self._topic = topic
        self.find = find
        self.settings = settings
        self._updates_per_snapshot = updates_per_snapshot
        self._dead_letters = dead_letters
        self.counts = counts
        self._purgatory = purgatory
        self._clock = clock
        self._groups: dict[str, dict[tuple[bytes, int], SharePartition]] = {}
        self._count = 0
        self._searches: Tasks = set()
        self._locks = purgatory.keyed_timers(self._on_locks_ended, kind="ShareAcquisitionLock")
        self._slices = RoundRobin(clock)
        self.initializations = Initializations(self._initialize, topic.flush, self.run_in_slices)
        self.reports = Reports()
        self.version = 0
        """Grows whenever a share-partition is added or removed."""
        self.unreadable: frozenset[int] = frozenset()
        """Partitions of the state topic that could not be read, so their content is unavailable."""

    def __iter__(self) -> Iterator[SharePartition]:
        for of_group in self._groups.values():
            yield from of_group.values()

    def __len__(self) -> int:
        return self._count

    def of_group(self, group_id: str) -> list[SharePartition]:
        """Return a copy of a group's share-partitions."""
        return list(self._groups.get(group_id, {}).values())

    def groups(self) -> Iterator[tuple[str, list[SharePartition]]]:
        """Yield the groups, each with a copy of its share-partitions."""
        for group_id in list(self._groups):
            yield group_id, self.of_group(group_id)

    def in_flight(self, share: SharePartition) -> int:
        """Return the number of records whose delivery is not complete; 0 if no window is loaded."""
        window = share.window
        if window is None:
            return 0
        return window.end_offset + 1 - window.start_offset - window.delivery_complete_count

    def oldest_lock_ms(self, share: SharePartition) -> int:
        """Return the age of the oldest lock; 0 without one."""
        locks = () if share.window is None else share.window.locks()
        now_ms = self._clock.monotonic_ms()
        return max((now_ms - lock.since_ms for lock in locks), default=0)

    def lag(self, share: SharePartition) -> int:
        """Count the records that are neither accepted nor archived, without loading the window."""
        log = self.find(share.key.topic_id, share.key.partition)
        progress = share.window or share.state
        if log is None or log.failure is not None or progress is None:
            return 0
        start = max(progress.start_offset, log.log.log_start_offset)
        left = log.high_watermark - start - progress.delivery_complete_count
        return max(left, 0)

    def get(self, group_id: str, topic_id: bytes, number: int) -> SharePartition | None:
        """Return a share-partition; None if the group has not initialized it.

        Raises KafkaError: COORDINATOR_NOT_AVAILABLE, its state cannot be read.
        """
        found = self.find_loaded(group_id, topic_id, number)
        if found is None and self.unreadable:
            key = SharePartitionKey(group_id, topic_id, number)
            if self.partition_of(key) in self.unreadable:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return found

    def find_loaded(self, group_id: str, topic_id: bytes, number: int) -> SharePartition | None:
        """Return a share-partition if it exists and its state could be read."""
        return self._groups.get(group_id, {}).get((topic_id, number))

    def partition_of(self, key: SharePartitionKey) -> int:
        """Return the partition of the state topic that stores a share-partition."""
        return partition_of(str(key), self._topic.partition_count)

    def window(
        self,
        share: SharePartition,
        log: Partition | None = None,
        settings: GroupSettings | None = None,
    ) -> Window | None:
        """Return the window of a share-partition, with the group's present settings and without
        records that were deleted from the log; None if its start offset is not determined yet.

        If `log` and `settings` are not given, they are looked up.
        """
        if settings is None:
            settings = self.settings(share.key.group_id)
        share.used_ms = self._clock.monotonic_ms()
        if share.reset_policy is not None and share.reset_policy != settings.reset_policy:
            self._begin(share, settings.reset_policy, share.state_epoch)
        if log is None:
            log = self.find(share.key.topic_id, share.key.partition)
        if log is not None and log.failure is not None:
            log = None  # The offsets of an offline log are unknown.
        if share.window is None and share.state is not None:
            if log is not None:
                self._cut(share, log)
            self._put_dead_letters(share, share.load(settings))
        window = share.load(settings)
        if window is not None and log is not None:
            log_start_offset = log.log.log_start_offset
            if log_start_offset > window.start_offset:
                self.reports.deleted(
                    share.key, window.start_offset, log_start_offset - 1, self._clock.wall_ms()
                )
                window.log_start_moved(log_start_offset)
        return window

    def _cut(self, share: SharePartition, log: Partition) -> None:
        """Remove offsets below the log start and above the high watermark from the stored state."""
        assert share.state is not None
        state = share.state.clamped(log.log.log_start_offset, log.high_watermark)
        if state is not share.state:
            logger.warning(
                "Truncated the state of %s to the log's offsets %d to %d",
                share,
                log.log.log_start_offset,
                log.high_watermark,
            )
            share.state = state

    # Steps.

    def after_step(self, share: SharePartition, on_stored: OnStored | None = None) -> bool:
        """Store the changes that the window has collected, and set its timer.

        Returns whether there were changes. If so, `on_stored` is called when they are durable, or
        with the error.
        """
        window = share.window
        assert window is not None
        write = window.take_write()
        if write is not None:
            record = share.writer.record(
                write,
                window,
                self._clock.wall_ms(),
                updates_per_snapshot=self._updates_per_snapshot(),
            )
            self._write(share, record, partial(self._on_stored, share, window, write, on_stored))
        self.set_timer(share)
        return write is not None

    def set_timer(self, share: SharePartition) -> None:
        """Set the timer of a share-partition to the earliest lock deadline."""
        share.note_start(self._clock)
        window = share.window
        deadline_ms = None if window is None else window.next_deadline_ms
        scheduled_ms = self._locks.deadline_ms(share)
        if deadline_ms is None:
            if scheduled_ms is not None:
                self._locks.cancel(share)
        elif scheduled_ms is None or scheduled_ms != deadline_ms:
            self._locks.schedule(share, deadline_ms)

    def wake(self, share: SharePartition) -> None:
        """Recheck the fetches that wait for a share-partition."""
        self._purgatory.check_and_complete(share)

    def _on_stored(
        self,
        share: SharePartition,
        window: Window,
        write: PendingWrite,
        on_stored: OnStored | None,
        error: KafkaError | None,
    ) -> None:
        # `window` has to know the outcome even if an alteration has replaced it by an empty one: it
        # is restored if the alteration cannot be stored.
        if error is None:
            window.written(write)
        else:
            logger.warning("A change of share-partition %s was not stored: %s", share, error)
            share.writer.failed()
            window.failed(write, self._clock.monotonic_ms())
        self._put_dead_letters(share, window)
        if share.window is window:
            if error is None and not share.is_gone:
                self._note_outcome(share, write)
            self.set_timer(share)
            self.wake(share)
        if on_stored is not None:
            on_stored(error)

    def _note_outcome(self, share: SharePartition, write: PendingWrite) -> None:
        counts = share.changing_counts
        before = counts["archived_at_limit"]
        self.reports.changed(share.key, counts, write.parts, self._clock.wall_ms())
        share.counts.archived_at_limit += counts["archived_at_limit"] - before

    def _put_dead_letters(self, share: SharePartition, window: Window | None) -> None:
        """Append dead letters for records that have become Archiving, then archive the records."""
        if window is not None and (dead_letters := window.take_dead_letters()):
            self._dead_letters.put(share, dead_letters, partial(self._archive, share, window))

    def _archive(
        self,
        share: SharePartition,
        window: Window,
        outcomes: Sequence[tuple[DeadLetters, Outcome]],
    ) -> None:
        if share.is_gone:
            return
        self.reports.archived(share.key, outcomes, self._clock.wall_ms())
        for dead_letters, _ in outcomes:
            window.archive(dead_letters.first_offset, dead_letters.last_offset)
        if share.window is window:
            self.after_step(share)

    def _write(self, share: SharePartition, record: StateRecord, on_stored: OnStored) -> None:
        def on_written(error: KafkaError | None, offset: int) -> None:
            if error is None and (record.is_snapshot or share.snapshot_offset is None):
                share.snapshot_offset = offset
            on_stored(error)

        self._topic.write(share.state_partition, record.key, record.value, on_written)

    def run_in_slices(self, work: Work) -> None:
        """Run work on share-partitions: one time slice now, the rest in later slices."""
        if work(self._slices.new_slice()):
            self._slices.add(work)

    def _on_locks_ended(self, shares: list[SharePartition], now_ms: int) -> None:
        del now_ms
        for share in shares:
            self._slices.add(partial(self._end_locks, share))

    def _end_locks(self, share: SharePartition, _: Slice) -> None:
        if share.window is None or share.is_gone:
            return
        # Looked up again, because `share.window` may have outdated settings.
        window = self.window(share)
        if window is not None:
            share.counts.lock_timeouts += window.on_deadline(self._clock.monotonic_ms())
            self.after_step(share)

    # Initialization and deletion.

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        """Initialize share-partitions that a group has added; delete those that it has removed."""
        del now
        if isinstance(event, SharePartitionsInitialized):
            new = [
                NewPartition(topic_id, number, event.epoch, topic_id in event.grown)
                for topic_id, (_, numbers) in event.topics.items()
                for number in numbers
            ]
            free = PARTITIONS_MAX - self._count
            if len(new) > free:
                # AlterShareGroupOffsets may have created some of these share-partitions before.
                new = [p for p in new if self.find_loaded(group_id, *p[:2]) is None]
            if len(new) > free:
                logger.warning(
                    "Too many share-partitions: %d of group %r are not initialized",
                    len(new) - max(free, 0),
                    group_id,
                )
            self.initializations.add(group_id, new)
        elif isinstance(event, SharePartitionsForgotten):
            self.initializations.remove(group_id, frozenset(event.partitions))
            for topic_id, number in event.partitions:
                self.forget(group_id, topic_id, number)

    def _initialize(self, group_id: str, new: NewPartition) -> None:
        key = SharePartitionKey(group_id, new.topic_id, new.number)
        if self.find_loaded(*key) is not None or self._count >= PARTITIONS_MAX:
            return
        if new.is_added:
            # From offset 0, whatever the reset policy: all records of an added partition are new.
            self._restart(self.add(key, None), 0, new.epoch)
        else:
            self.begin(key, self.settings(group_id).reset_policy, new.epoch)

    def begin(self, key: SharePartitionKey, policy: int, state_epoch: int) -> SharePartition:
        """Add a share-partition without state, and determine its start offset by a reset policy."""
        share = self.add(key, None)
        share.reset_policy = policy
        self._begin(share, policy, state_epoch)
        return share

    def add(self, key: SharePartitionKey, state: StoredState | None) -> SharePartition:
        """Add a share-partition, with its stored state if there is one."""
        self.version += 1
        self._count += 1
        counts = self.counts.of(key.group_id)
        share = SharePartition(key, state, self.partition_of(key), counts)
        self._groups.setdefault(key.group_id, {})[key.topic_id, key.partition] = share
        return share

    def forget(self, group_id: str, topic_id: bytes, number: int) -> None:
        """Delete a share-partition with its state."""
        of_group = self._groups.get(group_id, {})
        share = of_group.pop((topic_id, number), None)
        if not of_group:
            self._groups.pop(group_id, None)
            self.reports.remove(group_id)
        if share is not None:
            self.version += 1
            self._count -= 1
            share.is_gone = True
            self._locks.cancel(share)
            self._write(share, tombstone(share.key), _ignore)
            self.wake(share)

    def alter(
        self, key: SharePartitionKey, offset: int | None, state_epoch: int, on_stored: OnStored
    ) -> None:
        """Set the start offset, or with None apply the reset policy; all acquisition locks end."""
        share = self.find_loaded(*key)
        policy = self.settings(key.group_id).reset_policy
        if share is None:
            if self._count >= PARTITIONS_MAX:
                on_stored(KafkaError(ErrorCode.POLICY_VIOLATION, "Too many share-partitions."))
                return
            share = self.add(key, None)
        share.waiting += (on_stored,)
        if offset is None:
            self._begin(share, policy, state_epoch)
        else:
            share.reset_policy = None
            self._restart(share, offset, state_epoch)

    def write_cold_snapshot(self, share: SharePartition, interval_ms: int) -> None:
        """Write a snapshot of an idle share-partition, unless its last record is already such a
        snapshot, or was written less than `interval_ms` ago.
        """
        window = self.window(share)
        if window is not None:
            writer = share.writer
            record = writer.cold_snapshot(window, self._clock.wall_ms(), interval_ms=interval_ms)
            if record is not None:
                self._write(share, record, lambda error: writer.failed() if error else None)

    def _begin(self, share: SharePartition, policy: int, state_epoch: int) -> None:
        """Determine the start offset by the reset policy, and store it."""
        share.reset_policy = policy
        share.determining = token = object()
        log = self.find(share.key.topic_id, share.key.partition)

        def on_found(offset: int) -> None:
            if share.determining is not token:
                return  # A later lookup has begun, which will answer the waiting alterations.
            share.determining = None
            if share.is_gone:
                _answer(share.take_waiting(), KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            elif share.waiting or share.reset_policy == policy:
                share.reset_policy = policy
                self._restart(share, offset, state_epoch)

        if log is None:
            on_found(0)
        else:
            self._find_start(log, policy, on_found)

    def _find_start(self, log: Partition, policy: int, on_found: Callable[[int], None]) -> None:
        """Call `on_found` with the start offset that a reset policy determines: at once, or after
        a look-up by timestamp if the policy is a duration.
        """
        if policy == EARLIEST:
            on_found(log.log.log_start_offset)
        elif policy == LATEST:
            on_found(log.high_watermark)
        else:
            work = _search_start(log, self._clock.wall_ms() - policy, on_found)
            task = asyncio.get_running_loop().create_task(work, name="find a start offset")
            self._searches.add(task)
            task.add_done_callback(self._searches.discard)

    def _restart(self, share: SharePartition, offset: int, state_epoch: int) -> None:
        """Begin an empty window at `offset`, and store a snapshot. If `alter` was called and the
        snapshot cannot be stored, restore the last stored window, if any.
        """
        share.determining = None
        waiting = share.take_waiting()
        is_reset = share.reset_policy is not None
        wall_ms = self._clock.wall_ms()
        settings = self.settings(share.key.group_id)
        window: Window | None = None
        if share.state is None:
            record, state = initialized(share.key, offset, state_epoch, wall_ms)
            share.begin(state)
        else:
            share.load(settings)
            record = share.writer.altered(offset, state_epoch, wall_ms)
            window = Window(settings.window, offset)
            share.restart(window, state_epoch)
        self._locks.cancel(share)

        def on_written(error: KafkaError | None) -> None:
            if error is None:
                if window is not None:
                    share.restarted(window, state_epoch)
            elif not waiting:
                logger.warning("The start of share-partition %s was not stored: %s", share, error)
                if share.load(settings) is not None:
                    share.writer.failed()
                if window is not None:
                    share.restarted(window, state_epoch)
            elif window is not None:
                share.undo_restart(window)
            elif not is_reset and not share.is_gone:
                # No state is stored, so apply the reset policy, as a restarted broker would.
                share.forget_state()
                self._begin(share, settings.reset_policy, state_epoch)
            elif share.load(settings) is not None:
                share.writer.failed()
            if error is not None and share.window is not None:
                self.set_timer(share)
                self.wake(share)
            _answer(waiting, error)

        self._write(share, record, on_written)
        self.wake(share)


def _answer(waiting: Iterable[OnStored], error: KafkaError | None) -> None:
    for on_stored in waiting:
        on_stored(error)


async def _search_start(log: Partition, timestamp: int, on_found: Callable[[int], None]) -> None:
    try:
        found = await log.reads.offset_for_timestamp(timestamp)
    except KafkaError as error:
        logger.warning("Cannot look up the start offset of a share-partition of %r: %s", log, error)
        found = None
    on_found(log.high_watermark if found is None else found[0])


def _ignore(error: KafkaError | None) -> None:
    if error is not None:
        logger.warning("The state of a share-partition was not stored: %s", error)
