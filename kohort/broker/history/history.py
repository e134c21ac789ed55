"""The rebalance history: observes all groups, keeps the latest records of each, and stores them.

While a group executes a command, `observe` only stores the event. When a rebalance is complete, its
facts are queued for this module's only task, which creates the record in slices, passes it to
listeners, logs it, stores it, and writes it to the history topic in a batch with others. So
neither a group of five thousand members nor a failing disk delays any group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

from kohort.broker.history.closing_queue import ClosingQueue, Waiting
from kohort.broker.history.restoring import RecordedGenerations, restore
from kohort.broker.history.rings import Rings, StoredRecord, pack
from kohort.broker.history.topic import RUNNING, SLOW_FROM_BYTES, HistoryLog
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.clock import Clock, SystemClock
from kohort.broker.runtime.slices import RoundRobin, Slice, run
from kohort.groups.events import Event, GroupRemoved, GroupRestored, RebalanceStarted
from kohort.groups.history.entry import Entry
from kohort.groups.history.facts import RebalanceFacts, copy_of, remains_of
from kohort.groups.history.fold import BEGINNINGS, SETTLE_MS, GroupFold
from kohort.groups.history.names import AVOIDED, REBALANCE
from kohort.groups.requests import Now
from kohort.groups.steps import Steps, at_once

if TYPE_CHECKING:
    # Not needed at startup; see `RebalanceHistory._making`.
    from kohort.broker.history.record_maker import RecordMaker
    from kohort.groups.history.model import HistoryRecord

logger = logging.getLogger(__name__)

Listener: TypeAlias = "Callable[[HistoryRecord], None]"
T = TypeVar("T")

SIZE_DEFAULT: Final = 100
MEMORY_BYTES_DEFAULT: Final = 64 << 20

LOOK_EVERY_MS: Final = 1_000
"""The interval between checks of rebalances that are running or whose record is incomplete."""

LONG_RUNNING_MS: Final = 5_000
"""A rebalance that has lasted this long is recorded as running, so that a crash does not lose it.
Most rebalances take one heartbeat interval, 3 s, and need only one record."""

ANNOUNCED_AT_ONCE: Final = 20
"""Maximum rebalances recorded as running in one check; more are recorded after `MORE_AFTER_MS`."""

MEMBERS_AS_ONE: Final = 250
"""A rebalance counts once towards `ANNOUNCED_AT_ONCE`, and once more per this number of members,
because their data is copied."""

MORE_AFTER_MS: Final = 100
"""The delay before the next check if `ANNOUNCED_AT_ONCE` was reached."""

CLOSE_WAIT_S: Final = 5.0
"""How long a shutdown waits for records to be written."""


class HistoryLimits(NamedTuple):
    size: int = SIZE_DEFAULT
    memory_bytes: int = MEMORY_BYTES_DEFAULT
    removed_retention_ms: int = 30 * 86_400_000
    """How long the records of a removed group are kept; negative: until their memory is needed."""


class RebalanceHistory:
    """Observes all groups and stores the latest records of each."""

    def __init__(
        self,
        limits: HistoryLimits | None = None,
        clock: Clock | None = None,
        background_tasks: BackgroundTasks | None = None,
    ) -> None:
        self.observed: Collection[type[Event]] = frozenset(GroupFold.handlers)
        """The classes of events that the history receives; see `GroupObserver`."""
        self._limits = limits or HistoryLimits()
        self._clock = clock or SystemClock()
        self._background_tasks = background_tasks or BackgroundTasks(self._clock)
        self._time_slice = Slice(self._clock)
        self.answer_slices = RoundRobin(self._clock)
        """The queue of responses that groups have to send, set at assembly. The record of a large
        rebalance is created only when the queue is empty, so as not to delay the responses.
        """
        self._rings = Rings(self._limits.size, self._limits.memory_bytes)
        self._folds: dict[str, GroupFold] = {}
        self._under_way: dict[str, bool] = {}
        """Groups with a rebalance in progress; True once it was recorded as running."""
        self._queue = ClosingQueue()
        self._recorded: RecordedGenerations | None = None
        """Generations that have a record in the history; None once the groups are loaded."""
        self._cut_short: dict[str, Entry] = {}
        """Records of rebalances that were running when the previous process ended; empty once the
        groups are loaded."""
        self._entries: list[Entry] = []
        self._listeners: list[Listener] = []
        self._made: RecordMaker | None = None
        self._topic: HistoryLog | None = None
        self._executor: Executor | None = None
        self._wake: asyncio.Event | None = None
        self._worker: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_making_record = False
        self._is_closing = False

    # Starting and stopping.

    async def start(self, topic: HistoryLog, executor: Executor | None = None) -> None:
        """Read the stored records, before the groups are loaded, and write new records from
        now on.
        """
        self._recorded = RecordedGenerations(is_whole=topic.is_whole())
        for entry in await restore(topic, self._rings, self._clock, self._recorded):
            self._cut_short[entry.group_id] = entry
        self.begin(topic, executor)

    def begin(self, topic: HistoryLog, executor: Executor | None = None) -> None:
        """Write new records from now on; to be called instead of `start` if no records are
        stored.
        """
        self._topic = topic
        self._executor = executor
        self._wake = asyncio.Event()
        self._worker = self._background_tasks.start("rebalance history", self._work)
        self._look_later()

    def end_recovery(self) -> None:
        """Record rebalances that the last shutdown cut off; called after all groups are loaded."""
        self._recorded = None
        self._entries += self._cut_short.values()
        self._cut_short = {}
        self._wake_up()

    async def close(self) -> None:
        """Write all pending records; rebalances in progress are recorded as unfinished."""
        if self._timer is not None:
            self._timer.cancel()
        self.end_recovery()
        for group_id, fold in self._folds.items():
            fold.stop()
            self._take_closed(group_id, fold)
        self._is_closing = True
        self._wake_up()
        if self._worker is not None:
            # The task is not cancelled earlier, because the records being written would be lost.
            await asyncio.wait([self._worker], timeout=CLOSE_WAIT_S)
            self._worker.cancel()
            await asyncio.wait([self._worker])
        self._wake = None

    # Observing.

    def observe(self, group_id: str, event: Event, now: Now) -> None:
        """Store an event, to be processed by the history's task; takes a few microseconds."""
        kind = event.__class__
        fold = self._folds.get(group_id)
        if fold is None:
            if kind is GroupRemoved:
                self._rings.mark_removed(group_id, now.wall_ms)
            if kind not in BEGINNINGS:
                return
            if isinstance(event, GroupRestored) and self._recorded is not None:
                self._recover(group_id, event, self._recorded)
            ring = self._rings.get(group_id)
            fold = self._folds[group_id] = GroupFold(0 if ring is None else ring.last_sequence)
            if self._recorded is not None:
                fold.restarted_ms = now.ms
        try:
            fold.observe(event, now)
        except Exception:
            # An error in the history must not disturb the group, whose command is being executed.
            logger.exception("Internal error: restarting the history of group %r", group_id)
            self._start_over(group_id, fold)
            return
        if fold.closed:
            self._take_closed(group_id, fold)
        if kind is RebalanceStarted:
            self._under_way[group_id] = False
            self._look_later()
        elif kind is GroupRemoved:
            del self._folds[group_id]
            self._queue.add_end(group_id)
            self._wake_up()
        elif kind is GroupRestored and not fold.sequence:
            # A group that only stores offsets needs no fold, until it rebalances.
            del self._folds[group_id]

    def _start_over(self, group_id: str, fold: GroupFold) -> None:
        self._under_way.pop(group_id, None)
        self._folds[group_id] = GroupFold(fold.sequence)

    def _recover(self, group_id: str, event: GroupRestored, recorded: RecordedGenerations) -> None:
        """Create the records that the previous process did not write, and complete the records of
        rebalances that were running.
        """
        missing = recorded.missing(event.generations)
        if not missing:
            return
        from kohort.broker.history.record_maker import completed_text, recovered_text  # noqa: PLC0415 - rarely needed.

        last = self._cut_short.get(group_id)
        for stored, begun in missing:
            text = None if last is None else completed_text(last.text, stored, begun)
            if last is not None and text is not None:
                del self._cut_short[group_id]
                sequence = last.sequence
                self._rings.replace_last(group_id, pack(text))
            else:
                ring = self._rings.get(group_id)
                sequence = 1 + (0 if ring is None else ring.last_sequence)
                text = recovered_text(stored, begun, sequence)
                self._rings.add(group_id, sequence, pack(text), is_rebalance=True)
            last = None
            self._add_entry(group_id, REBALANCE, sequence, text, stored.generation)

    def add_listener(self, listener: Listener) -> None:
        """Call `listener` once with each complete record, in order within each group."""
        self._listeners.append(listener)

    def _take_closed(self, group_id: str, fold: GroupFold) -> None:
        now_ms = self._clock.monotonic_ms()
        for closed in fold.closed:
            self._queue.add(Waiting(group_id, closed, now_ms))
        fold.closed.clear()
        if fold.open is None:
            self._under_way.pop(group_id, None)
        self._wake_up()

    def _wake_up(self) -> None:
        if self._wake is not None:
            self._wake.set()

    # Queries.

    def stored_records(self, group_id: str) -> list[StoredRecord]:
        """Return a group's complete records, oldest first; decompress them one at a time."""
        ring = self._rings.get(group_id)
        return [] if ring is None else list(ring.records)

    def open_text_steps(self, group_id: str) -> Steps[bytes] | None:
        """Return, in steps, the JSON record of the rebalance in progress, or of one that has just
        ended while members are still fetching their assignments; None if there is none. The record
        shows the state at the time of the call, and at most a hundred members.
        """
        fold = self._folds.get(group_id)
        if fold is None or fold.open is None:
            return None
        now_ms = self._clock.monotonic_ms()
        return self._making.open_text_steps(group_id, copy_of(fold.open), now_ms)

    def groups(self) -> Iterable[str]:
        return dict.fromkeys((*self._rings, *self._under_way))

    def totals(self, group_id: str) -> tuple[int, int]:
        """Return the number of rebalances and the number of avoided rebalances, including those
        whose records were dropped.
        """
        ring = self._rings.get(group_id)
        return (0, 0) if ring is None else (ring.rebalance_count, ring.avoided_count)

    @property
    def is_caught_up(self) -> bool:
        """Whether every complete rebalance has its record."""
        return not self._queue and not self._is_making_record

    @property
    def waiting_weight(self) -> int:
        """The weight of the rebalances to be recorded; see `ClosingQueue.weight`."""
        return self._queue.weight

    def stats(self) -> dict[str, int]:
        return {
            "groups": len(self._rings),
            "records": self._rings.record_count,
            "memory_bytes": self._rings.memory_bytes,
            "waiting": len(self._queue),
            "dropped": self._queue.dropped_count,
            "lost": 0 if self._topic is None else self._topic.lost_count,
        }

    # Creating records.

    @property
    def _making(self) -> RecordMaker:
        if self._made is None:
            self._made = _import_making()(self._clock)
        return self._made

    async def _go_through(self, steps: Steps[T], *, is_small: bool) -> T:
        """Run the steps in slices, or at once if `is_small`."""
        return at_once(steps) if is_small else await run(steps, self._time_slice)

    async def _run_in_executor(self, work: Callable[..., T], *args: object) -> T:
        """Run slow work in the executor, if one is configured."""
        if self._executor is None:
            return work(*args)
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)

    def drain(self) -> None:
        """Create all waiting records without writing them: for callers without an event loop."""
        while self._queue:
            waiting = self._take_next()
            if waiting is not None and not waiting.is_running:
                record = self._making.record_of(waiting)
                text = self._making.text_of(record)
                self._keep(record, text, pack(text))

    async def _work(self) -> None:
        assert self._wake is not None
        # Do not wait at first: this task may have been restarted with entries in the queue.
        self._wake.set()
        while not self._is_closing or self._queue or self._entries:
            await self._wake.wait()
            self._wake.clear()
            if self._queue and self._made is None:
                await self._run_in_executor(_import_making)
            self._time_slice.begin()
            while self._queue:
                await self._close_next()
                # Written between slices, because an append may wait for the disk.
                await self._time_slice.pause(between=self._write)
            await self._write()

    async def _close_next(self) -> None:
        waiting = self._take_next()
        if waiting is None:
            return
        self._is_making_record = True
        try:
            await self._close_one(waiting)
        except Exception:
            # An internal error loses one record, not the whole history.
            logger.exception(
                "Internal error: a rebalance of group %r is not recorded", waiting.group_id
            )
            self._queue.dropped_count += 1
        finally:
            self._is_making_record = False
        facts, waiting.closed = waiting.closed, None
        if isinstance(facts, RebalanceFacts):
            remains = remains_of(facts)
            del facts
            await self._go_through(self._making.let_go(remains), is_small=waiting.is_small)

    async def _close_one(self, waiting: Waiting) -> None:
        if waiting.is_running:
            await self._write_running(waiting)
            return
        is_small = waiting.is_small
        if not is_small:
            await self.answer_slices.wait_idle()
            self._time_slice.begin()
        record = await self._go_through(self._making.record_steps(waiting), is_small=is_small)
        text = await self._go_through(self._making.text_steps(record), is_small=is_small)
        is_slow = len(text) >= SLOW_FROM_BYTES
        packed = await self._run_in_executor(pack, text) if is_slow else pack(text)
        self._keep(record, text, packed)

    def _take_next(self) -> Waiting | None:
        """Take the next item of the queue: return a rebalance to record, or forget a removed group
        and return None.
        """
        waiting = self._queue.take()
        if waiting.closed is not None:
            return waiting
        now_ms = self._clock.wall_ms()
        self._rings.mark_removed(waiting.group_id, now_ms)
        if self._made is not None:
            self._made.forget(waiting.group_id)
        if self._limits.removed_retention_ms >= 0:
            self._rings.forget_removed(now_ms - self._limits.removed_retention_ms)
        return None

    def _keep(self, record: HistoryRecord, text: bytes, packed: StoredRecord) -> None:
        kind = self._making.kind_of(record)
        self._rings.add(record.group, record.sequence, packed, is_rebalance=kind != AVOIDED)
        generation = self._making.generation_of(record)
        self._add_entry(record.group, kind, record.sequence, text, generation)
        self._making.log(record)
        for listener in self._listeners:
            try:
                listener(record)
            except Exception:
                logger.exception("A listener of the rebalance history failed")

    # Writing.

    def _add_entry(
        self, group_id: str, kind: str, sequence: int, text: bytes, generation: int | None = None
    ) -> None:
        if self._topic is not None:
            now_ms = self._clock.wall_ms()
            self._entries.append(Entry(group_id, kind, sequence, text, now_ms, generation))

    async def _write(self) -> None:
        entries, self._entries = self._entries, []
        if entries and self._topic is not None:
            await self._topic.append(entries)

    # Checking long rebalances.

    def _look_later(self, after_ms: int = LOOK_EVERY_MS) -> None:
        if self._timer is None and self._wake is not None and self._under_way:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(after_ms / 1_000, self._look)

    def _look(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        announced, is_more = 0, False
        for group_id, is_announced in list(self._under_way.items()):
            fold = self._folds[group_id]
            facts = fold.open
            assert facts is not None
            if facts.finished_ms is not None:
                if now_ms - facts.finished_ms >= SETTLE_MS or facts.is_complete(now_ms):
                    self._settle(group_id, fold)
            elif not is_announced and now_ms - facts.began.ms >= _long_ms(facts):
                if announced >= ANNOUNCED_AT_ONCE:
                    is_more = True
                    continue
                size = len(facts.joins) + len(facts.gone)
                if facts.consumers is not None:
                    size += len(facts.consumers.members)
                announced += 1 + size // MEMBERS_AS_ONE
                self._announce(group_id, facts)
        self._look_later(MORE_AFTER_MS if is_more else LOOK_EVERY_MS)

    def _settle(self, group_id: str, fold: GroupFold) -> None:
        try:
            fold.settle()
            self._take_closed(group_id, fold)
        except Exception:
            # An error in one group must not end the check of other groups.
            logger.exception("Internal error: restarting the history of group %r", group_id)
            self._start_over(group_id, fold)

    def _announce(self, group_id: str, facts: RebalanceFacts) -> None:
        self._under_way[group_id] = True
        now_ms = self._clock.monotonic_ms()
        self._queue.add(Waiting(group_id, copy_of(facts), now_ms, is_running=True))
        self._wake_up()

    async def _write_running(self, waiting: Waiting) -> None:
        facts = waiting.closed
        assert isinstance(facts, RebalanceFacts)
        steps = self._making.open_text_steps(waiting.group_id, facts, waiting.until_ms)
        self._add_entry(
            waiting.group_id, RUNNING, facts.sequence, await run(steps, self._time_slice)
        )


def _long_ms(facts: RebalanceFacts) -> int:
    """Return the age at which a rebalance is recorded as running. Members of a consumer group learn
    of a rebalance with their next heartbeat, and get partitions with the heartbeat after that.
    """
    if facts.consumers is None:
        return LONG_RUNNING_MS
    # At least LONG_RUNNING_MS: with few members, the heartbeat interval is only 500 ms.
    return max(2 * facts.started.heartbeat_interval_ms + 1_000, LONG_RUNNING_MS)


def _import_making() -> type[RecordMaker]:
    from kohort.broker.history.record_maker import RecordMaker  # noqa: PLC0415 - saves 30 ms at startup.

    return RecordMaker
