"""A share-partition with its log, state topic and members, and beside it a model that has one entry
per offset. Times are virtual, everything is drawn from a seed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import pytest

from kohort.groups.share.state_log import (
    SharePartitionKey,
    StateRecord,
    StateReplay,
    StateWriter,
    StoredState,
    initialized,
)
from kohort.groups.share.states import RecordState, StateBatch, StateWrite
from kohort.groups.share.window import (
    AcquireMode,
    LogBatch,
    PendingWrite,
    Window,
    WindowSettings,
    are_valid,
)
from kohort.protocol.errors import DecodeError, ErrorCode
from kohort.protocol.messages.share_acknowledge import AcknowledgementBatch

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED, SKIPPED = RecordState
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)

KEY: Final = SharePartitionKey("group", bytes(16), 0)
MEMBERS: Final = ("a", "b", "c")
UPDATES_PER_SNAPSHOT: Final = (0, 3, 500)
"""There is a state topic for each; all must restore the same."""

Stored = dict[int, tuple[RecordState, int]]


@dataclass(slots=True)
class Entry:
    """An offset of the window."""

    state: RecordState = AVAILABLE
    count: int = 0
    is_known: bool = True
    """Whether it was acquired in this life of the process, or stored; others are holes."""
    member: str | None = None
    deadline_ms: int = 0
    write: int = 0
    """Number of the write that makes its state durable; 0 if it is."""
    stands: bool = False
    """Whether its state holds although that write fails."""
    session_ended: bool = False
    changed: int = 0
    """Grows from change to change."""

    @property
    def can_be_acquired(self) -> bool:
        return self.state is AVAILABLE and not self.write

    @property
    def is_finished(self) -> bool:
        return self.state not in {AVAILABLE, ACQUIRED, ARCHIVING}


class Model:
    """What is expected of a window."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start - 1
        self.entries: dict[int, Entry] = {}
        """In offset order. Offsets that the log did not have are missing."""

    def restore(self, state: StoredState) -> None:
        for first, last, stored, count in state.batches:
            for offset in range(self.end + 1, first):
                self.entries[offset] = Entry(is_known=False)
            for offset in range(first, last + 1):
                self.entries[offset] = Entry(stored, count)
            self.end = last
        self.advance()

    def advance(self) -> None:
        for offset, entry in list(self.entries.items()):
            if not entry.is_finished or entry.write:
                break
            del self.entries[offset]
        self.start = next(iter(self.entries), self.end + 1)

    def drop_below(self, offset: int) -> None:
        if offset <= self.start:
            return
        for dropped in [present for present in self.entries if present < offset]:
            del self.entries[dropped]
        self.end = max(self.end, offset - 1)
        self.advance()

    @property
    def complete(self) -> int:
        return sum(entry.is_finished for entry in self.entries.values())

    @property
    def position(self) -> int:
        available = (offset for offset, entry in self.entries.items() if entry.can_be_acquired)
        return next(available, self.end + 1)

    def stored(self) -> Stored:
        """Return what the state topic has to restore; records are there as they were before what
        is not written.
        """
        result: Stored = {}
        for offset, entry in self.entries.items():
            if entry.state in {ACQUIRED, SKIPPED}:
                if entry.count > 1:
                    result[offset] = (AVAILABLE, entry.count - 1)
            elif entry.state is not AVAILABLE or entry.count:
                result[offset] = (entry.state, entry.count)
        return result

    def error_of(
        self, member: str, batches: Sequence[AcknowledgementBatch], *, may_renew: bool
    ) -> ErrorCode | None:
        """Return the error that acknowledgements have to get."""
        done: set[int] = set()
        for batch in batches:
            first, last = batch.first_offset, batch.last_offset
            if last < self.start:
                continue
            known = [offset for offset, entry in self.entries.items() if entry.is_known]
            if not any(offset <= max(first, self.start) for offset in known):
                return ErrorCode.INVALID_RECORD_STATE
            if max(offset for offset in known if offset <= max(last, self.start)) != last:
                return ErrorCode.INVALID_REQUEST
            types = batch.acknowledge_types
            for offset in known:
                if not first <= offset <= last:
                    continue
                entry = self.entries[offset]
                if entry.member != member or entry.write or offset in done:
                    return ErrorCode.INVALID_RECORD_STATE
                kind = types[offset - first] if len(types) > 1 else types[0]
                if kind != RENEW:
                    done.add(offset)
                elif not may_renew:
                    return ErrorCode.INVALID_RECORD_STATE
        return None


class World:
    """The window and everything around it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.settings = WindowSettings(
            lock_duration_ms=self.random.choice([10, 50]),
            delivery_count_limit=self.random.randint(2, 10),
            max_record_locks=self.random.choice([10, 25, 60]),
            has_dead_letters=self.random.random() < 0.5,
        )
        self.limit_was_lowered = False
        self.now_ms = 0
        self.log: list[LogBatch] = []
        self.log_start = 0
        self.log_end = 0
        self.reads_committed = self.random.random() < 0.3
        record, state = initialized(KEY, 0, 1, 0)
        assert record.value is not None
        self.topics: list[list[tuple[bytes, bytes]]] = [
            [(record.key, record.value)] for _ in UPDATES_PER_SNAPSHOT
        ]
        self.expected: list[tuple[int, Stored]] = [(0, {})]
        """Start and states that are restored after each record of the topics."""
        self.durable = 1
        """Number of records that survive a crash."""
        self.writers = [StateWriter(KEY, state) for _ in UPDATES_PER_SNAPSHOT]
        self.replays = [StateReplay() for _ in UPDATES_PER_SNAPSHOT]
        for replay, topic in zip(self.replays, self.topics, strict=True):
            replay.apply(*topic[0])
        self.pending: list[tuple[int, PendingWrite]] = []
        self.write_number = 0
        self.delivered: set[int] = set()
        self.finished: set[int] = set()
        """Accepted or rejected, and answered."""
        self.lost: set[int] = set()
        """Aborted, or passed by an alteration."""
        self.compacted: set[int] = set()
        self.changes = 0
        self.dead_letters: list[int] = []
        """Offsets that the window has returned, and that are not archived yet."""
        self.due: set[int] = set()
        """Offsets that have to get a dead letter."""
        self.lettered: set[int] = set()
        """Offsets with a dead letter."""
        self.window = Window(self.settings, 0)
        self.model = Model(0)
        self.lowest_start = 0
        """The start never falls, except by an alteration, or to the stored one after a crash."""

    # Steps.

    def step(self) -> None:
        kind = self.random.choices(
            ["acquire", "acknowledge", "time", "append", "sync", "close", "letter", "rare"],
            [30, 34, 10, 12, 6, 3, 6, 5],
        )[0]
        member = self.random.choice(MEMBERS)
        match kind:
            case "acquire":
                self.acquire(member)
            case "acknowledge":
                self.acknowledge(member)
            case "time":
                self.pass_time()
            case "append":
                self.append()
            case "sync":
                self.sync()
            case "close":
                self.release_all(member)
                self.store()
            case "letter":
                self.write_dead_letters(self.random.randint(1, 6))
            case _:
                self.random.choice(
                    [
                        self.crash,
                        self.crash,
                        self.delete_records,
                        self.compact,
                        self.change_settings,
                        self.alter,
                        self.write_cold_snapshot,
                    ]
                )()
        self.compare()

    def append(self) -> None:
        """Append a batch of data, a marker, or one that belongs to an aborted transaction."""
        last = self.log_end + self.random.choice([1, 1, 2, 3, 5, 9, 20]) - 1
        self.log.append(LogBatch(self.log_end, last, self.random.random() < 0.1))
        self.log_end = last + 1

    def acquire(self, member: str) -> None:
        self.forget_deleted()
        window, model = self.window, self.model
        position = window.position
        assert position == model.position
        end = model.end
        room = self.settings.max_record_locks - (end - model.start + 1)
        assert window.can_acquire == (room > 0 or model.position <= end)
        read = [batch for batch in self.log if batch.last_offset >= window.position]
        read = read[: self.random.randint(1, 6)]
        if not self.reads_committed:
            read = [batch._replace(is_aborted=False) for batch in read]
        max_records = self.random.choice([0, 1, 2, 5, 100])
        record_limit = self.random.random() < 0.4
        acquisition = window.acquire(
            member,
            self.now_ms,
            read,
            max_records=max_records,
            batch_size=self.random.choice([1, 4, 100]),
            mode=AcquireMode.RECORD_LIMIT if record_limit else AcquireMode.BATCH_OPTIMIZED,
        )
        taken: dict[int, int] = {}
        for first, last, count in acquisition.ranges:
            assert first > max(taken, default=-1)
            taken.update(dict.fromkeys(range(first, last + 1), count))
        if not read:
            assert not taken
            return
        room = self.follow_read(read)
        skipped, held = self.aborted_in(read)
        assert held == (self.held_aborted(read) if max_records else set())
        for offset in held:
            model.entries[offset] = replace(model.entries[offset], state=SKIPPED, member=None)
        if record_limit:
            self.know_rest(sorted({*taken, *skipped}), read)
        for offset in skipped:
            entry = model.entries[offset]
            entry.state = SKIPPED
            entry.count += 1
            entry.is_known = True
        self.lost |= skipped | held
        for offset, count in taken.items():
            entry = model.entries[offset]
            assert entry.can_be_acquired
            assert count == entry.count + 1
            assert count <= self.settings.delivery_count_limit or self.limit_was_lowered
            model.entries[offset] = Entry(
                ACQUIRED, count, True, member, self.now_ms + self.settings.lock_duration_ms
            )
        assert len(taken) + len(skipped) == acquisition.record_count
        if record_limit:
            assert acquisition.record_count <= max_records
        limit = self.settings.delivery_count_limit
        if limit > 2 and limit in taken.values():
            assert acquisition.record_count == 1
        if max_records and not taken and window.position == position:
            assert position > end
            assert room <= 0 or not any(batch.last_offset > end for batch in read)
        if taken:
            assert min(taken) <= model.position
        model.advance()
        self.delivered.update(taken)

    def follow_read(self, read: Sequence[LogBatch]) -> int:
        """Add what the window has grown by, and skip what the log does not have; return how much it
        might have grown.
        """
        model = self.model
        first = read[0].first_offset
        for offset, entry in model.entries.items():
            if offset < first and entry.can_be_acquired:
                assert offset in self.compacted or offset < self.log_start
                entry.state = SKIPPED
                entry.count += 1
        model.advance()
        room = self.settings.max_record_locks - (model.end - model.start + 1)
        end = self.window.end_offset
        if end > model.end:
            first = max(model.end + 1, first)
            assert room > 0
            lasts = [batch.last_offset for batch in read]
            assert end in lasts
            assert end <= next((last for last in lasts if last >= first + room - 1), end)
            for offset in range(first, end + 1):
                model.entries[offset] = Entry()
            model.end = end
            model.start = next(iter(model.entries))
        return room

    def know_rest(self, acquired: Sequence[int], read: Sequence[LogBatch]) -> None:
        """A range goes to the end of a producer batch, even if only some of it is acquired; in a
        hole, at most to its end.
        """
        entries = self.model.entries
        for first in acquired:
            if not entries[first].is_known:
                wanted = first
                while wanted + 1 in acquired and not entries[wanted + 1].is_known:
                    wanted += 1
                ends = [batch.last_offset for batch in read if batch.first_offset <= wanted]
                if ends[-1] < first:
                    ends = [batch.last_offset for batch in read[: len(ends) + 1]]
                for offset in range(first, ends[-1] + 1):
                    if offset not in entries or entries[offset].is_known:
                        break
                    entries[offset].is_known = True

    def aborted_in(self, read: Sequence[LogBatch]) -> tuple[set[int], set[int]]:
        """Return the offsets that the window has just archived, which have to be aborted: those
        that could be acquired, and those that a member held.
        """
        present = {
            offset
            for item in self.window.segments()
            for offset in range(item.first, item.last + 1)
            if item.state is not SKIPPED
        }
        archived = {
            offset: entry.state
            for offset, entry in self.model.entries.items()
            if offset not in present and (entry.can_be_acquired or entry.state is ACQUIRED)
        }
        assert archived.keys() <= _aborted(read)
        held = {offset for offset, state in archived.items() if state is ACQUIRED}
        return archived.keys() - held, held

    def held_aborted(self, read: Sequence[LogBatch]) -> set[int]:
        """Return the aborted offsets that members hold."""
        entries = self.model.entries
        aborted = _aborted(read)
        return {offset for offset in aborted & entries.keys() if entries[offset].state is ACQUIRED}

    def acknowledge(self, member: str) -> None:
        batches = self.some_acknowledgements(member)
        if not are_valid(batches, may_renew=True, highest_type=4):
            return
        expected = self.model.error_of(member, batches, may_renew=self.settings.renew_enabled)
        error = self.window.acknowledge(member, self.now_ms, batches)
        assert (None if error is None else error.code) == expected, (batches, error)
        if error is None:
            self.apply(batches)
        self.compare()
        if self.random.random() < 0.1:
            self.release_all(member)
        self.store()

    def some_acknowledgements(self, member: str) -> list[AcknowledgementBatch]:
        """Draw acknowledgements of what a member holds, sometimes of other offsets too."""
        random = self.random
        held = [offset for offset, entry in self.model.entries.items() if entry.member == member]
        batches: list[AcknowledgementBatch] = []
        next_offset = -1
        while held and len(batches) < random.choice([1, 3, 30]):
            first = held[0] if random.random() < 0.5 else random.choice(held)
            last = first
            longest = random.choice([1, 1, 3, 50])
            while last + 1 in held and last - first + 1 < longest:
                last += 1
            if random.random() < 0.06:
                first -= random.choice([1, 5])
            if random.random() < 0.06:
                last += random.choice([1, 5, 2**40])
            held = [offset for offset in held if offset > last]
            if first < next_offset and random.random() < 0.9:
                continue
            kinds = [GAP, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, RENEW]
            size = last - first + 1 if random.random() < 0.3 and last - first < 99 else 1
            batches.append(acknowledgement(first, last, *random.choices(kinds, k=size)))
            next_offset = last
        if not batches:
            first = random.randint(self.model.start - 3, self.model.end + 3)
            batches.append(acknowledgement(first, first + random.choice([0, 2, 9]), ACCEPT))
        return batches

    def apply(self, batches: Sequence[AcknowledgementBatch]) -> None:
        renewed: list[Entry] = []
        for batch in batches:
            types = batch.acknowledge_types
            for offset, entry in self.model.entries.items():
                if batch.first_offset <= offset <= batch.last_offset and entry.is_known:
                    kind = types[offset - batch.first_offset] if len(types) > 1 else types[0]
                    if kind == RENEW:
                        renewed.append(entry)
                    else:
                        self.change(entry, kind, stands=False)
        for entry in renewed:
            if entry.state is ACQUIRED:
                entry.deadline_ms = self.now_ms + self.settings.lock_duration_ms

    def change(self, entry: Entry, kind: int, *, stands: bool) -> None:
        at_limit = entry.count >= self.settings.delivery_count_limit
        archived = ARCHIVING if self.settings.has_dead_letters else ARCHIVED
        if kind == RELEASE:
            entry.state = archived if at_limit else AVAILABLE
        elif kind == REJECT:
            entry.state = archived
        else:
            entry.state = ACKNOWLEDGED if kind == ACCEPT else ARCHIVED
        self.changes += 1
        entry.changed = self.changes
        entry.write = self.write_number + 1
        entry.stands = stands

    def release_all(self, member: str) -> None:
        self.window.release_all(member)
        for entry in self.model.entries.values():
            if entry.member == member and entry.state is ACQUIRED:
                self.change(entry, RELEASE, stands=True)
            elif entry.member == member and entry.write:
                entry.session_ended = True

    def pass_time(self) -> None:
        self.now_ms += self.random.choice([1, 5, 10, 30])
        due = [
            entry
            for entry in self.model.entries.values()
            if entry.state is ACQUIRED and entry.deadline_ms <= self.now_ms
        ]
        deadline_ms = self.window.next_deadline_ms
        if deadline_ms is None or deadline_ms > self.now_ms:
            assert not due
            return
        assert self.window.on_deadline(self.now_ms) == len(due)
        for entry in due:
            self.change(entry, RELEASE, stands=True)
        self.store()
        locked = [entry for entry in self.model.entries.values() if entry.state is ACQUIRED]
        earliest_ms = min((entry.deadline_ms for entry in locked), default=None)
        assert self.window.next_deadline_ms == earliest_ms

    # The state topic.

    def store(self) -> None:
        """Append the changes; the append may fail, or become durable later."""
        model = self.model
        number = self.write_number + 1
        changed = {
            offset: (entry.state, entry.count)
            for offset, entry in model.entries.items()
            if entry.write == number
        }
        write = self.window.take_write()
        assert (write is not None) == bool(changed)
        if write is None:
            return
        self.write_number = number
        assert write.change.start_offset == model.start
        assert write.change.delivery_complete_count == model.complete
        assert expanded(write.change.batches) == changed
        outcome = self.random.random()
        if outcome < 0.02:
            self.crash()
            return
        records = [
            writer.record(write, self.window, self.now_ms, updates_per_snapshot=updates)
            for writer, updates in zip(self.writers, UPDATES_PER_SNAPSHOT, strict=True)
        ]
        if outcome < 0.05:
            for writer in self.writers:
                writer.failed()
            self.window.failed(write, self.now_ms)
            self.roll_back(number)
            return
        self.log_state(records)
        self.pending.append((number, write))
        if outcome < 0.07:
            self.crash()
        elif outcome < 0.8:
            self.sync()

    def log_state(self, records: Sequence[StateRecord]) -> None:
        """Append a record to each topic; what they restore is what lives."""
        self.expected.append((self.model.start, self.model.stored()))
        for topic, replay, (key, value, _) in zip(self.topics, self.replays, records, strict=True):
            assert value is not None
            topic.append((key, value))
            replay.apply(key, value)
            self.check_restored(replay.states[KEY], len(topic) - 1)

    def check_restored(self, state: StoredState, index: int) -> None:
        start, stored = self.expected[index]
        assert state.start_offset == start
        assert expanded(state.batches) == stored

    def roll_back(self, number: int) -> None:
        archived = ARCHIVING if self.settings.has_dead_letters else ARCHIVED
        before = self.archiving()
        for entry in self.model.entries.values():
            if entry.write == number:
                entry.write = 0
                if not entry.stands:
                    ended = entry.session_ended or entry.deadline_ms <= self.now_ms
                    at_limit = entry.count >= self.settings.delivery_count_limit
                    released = archived if at_limit else AVAILABLE
                    entry.state = released if ended else ACQUIRED
                if entry.state is not ACQUIRED:
                    entry.member = None
        self.model.advance()
        self.take_dead_letters(before, are_durable=False)

    def archiving(self) -> list[int]:
        """Return the offsets that the window has returned, or has to return now, in order."""
        entries = self.model.entries.items()
        archiving = [item for item in entries if item[1].state is ARCHIVING and not item[1].write]
        return [offset for offset, _ in sorted(archiving, key=lambda item: item[1].changed)]

    def take_dead_letters(self, before: Sequence[int], *, are_durable: bool = True) -> None:
        """Take those that became Archiving after `before`. The log may have lost some of them. A
        crash undoes the state of those that are not durable.
        """
        taken: list[int] = []
        for first, last, count, _, _ in self.window.take_dead_letters():
            for offset in range(first, last + 1):
                if offset in self.model.entries:
                    assert self.model.entries[offset].count == count
                    taken.append(offset)
        assert taken == [offset for offset in self.archiving() if offset not in before]
        self.dead_letters += taken
        if are_durable:
            self.due |= set(taken)

    def write_dead_letters(self, count: int) -> None:
        """Append the dead letters of some records, and archive these; or crash in between."""
        written = self.dead_letters[:count]
        del self.dead_letters[:count]
        self.lettered |= set(written)
        if written and self.random.random() < 0.05:
            self.crash()
            return
        for offset in written:
            self.window.archive(offset, offset)
            entry = self.model.entries.get(offset)
            if entry is not None:
                assert entry.state is ARCHIVING
                entry.state = ARCHIVED
                entry.write = self.write_number + 1
                entry.stands = True
        self.store()

    def sync(self) -> None:
        """Make all appended records durable, in order."""
        self.durable = len(self.expected)
        for number, write in self.pending:
            before = self.archiving()
            self.window.written(write)
            for offset, entry in self.model.entries.items():
                if entry.write == number:
                    entry.write = 0
                    entry.member = None
                    if entry.state not in {AVAILABLE, ACQUIRED}:
                        self.finished.add(offset)
            self.take_dead_letters(before)
        self.pending.clear()
        self.model.advance()

    def write_cold_snapshot(self) -> None:
        if self.pending:
            return
        records = [
            writer.cold_snapshot(self.window, self.now_ms, interval_ms=0) for writer in self.writers
        ]
        if any(records):
            # A restored writer may know that its last record was such a snapshot.
            unchanged = StateWrite(self.model.start, self.model.complete, ())
            self.log_state([record or update_of(unchanged) for record in records])
            self.durable = len(self.expected)

    def alter(self) -> None:
        """Move the start anywhere in the log; all else is forgotten."""
        if self.random.random() < 0.8:
            return
        self.sync()
        start = self.random.randint(self.log_start, self.log_end)
        self.window = Window(self.settings, start)
        self.model = Model(start)
        self.dead_letters.clear()
        self.lowest_start = start
        records = [writer.altered(start, 2, self.now_ms) for writer in self.writers]
        self.log_state(records)
        self.durable = len(self.expected)
        self.lost |= set(range(start))
        self.due.clear()
        for offsets in (self.finished, self.delivered):
            offsets -= {offset for offset in offsets if offset >= start}
        self.lost -= {offset for offset in self.lost if offset >= start}

    def crash(self) -> None:
        """Lose the process, and what was not durable from some record on."""
        count = self.random.randint(self.durable, len(self.expected))
        torn = count < len(self.expected)
        del self.expected[count:]
        self.replays = [StateReplay() for _ in self.topics]
        for topic, replay in zip(self.topics, self.replays, strict=True):
            if torn:
                key, value = topic[count]
                with pytest.raises(DecodeError):
                    StateReplay().apply(key, value[: self.random.randrange(len(value))])
            del topic[count:]
            for key, value in topic:
                replay.apply(key, value)
            self.check_restored(replay.states[KEY], count - 1)
        states = [replay.states[KEY] for replay in self.replays]
        for state in states:
            assert state.start_offset == states[0].start_offset
            assert state.delivery_complete_count == states[0].delivery_complete_count
        self.durable = count
        self.pending.clear()
        self.writers = [StateWriter(KEY, state) for state in states]
        state = self.random.choice(states).clamped(self.log_start, self.log_end)
        self.window = Window(self.settings, state.start_offset, state.batches)
        self.model = Model(state.start_offset)
        self.model.restore(state)
        self.lowest_start = state.start_offset
        for offset, entry in self.model.entries.items():
            assert entry.state not in {AVAILABLE, ACQUIRED} or offset not in self.finished
        assert not any(offset > self.model.end for offset in self.finished)
        self.dead_letters.clear()
        self.take_dead_letters([])

    # The log and the settings.

    def delete_records(self) -> None:
        self.log_start = self.random.randint(self.log_start, self.log_end)
        self.log = [batch for batch in self.log if batch.last_offset >= self.log_start]
        self.forget_deleted()

    def forget_deleted(self) -> None:
        self.window.log_start_moved(self.log_start)
        self.model.drop_below(self.log_start)

    def compact(self) -> None:
        """Remove a batch; later reads do not find it."""
        if self.log:
            batch = self.log.pop(self.random.randrange(len(self.log)))
            self.compacted |= set(range(batch.first_offset, batch.last_offset + 1))

    def change_settings(self) -> None:
        limit = self.random.randint(2, 10)
        self.limit_was_lowered |= limit < self.settings.delivery_count_limit
        self.settings = self.settings._replace(
            lock_duration_ms=self.random.choice([10, 50]),
            delivery_count_limit=limit,
            renew_enabled=self.random.random() < 0.8,
            has_dead_letters=self.random.random() < 0.5,
        )
        self.window.settings = self.settings
        self.reads_committed = self.random.random() < 0.3

    # Checks.

    def compare(self) -> None:
        """Compare the window with the model, offset by offset."""
        window, model = self.window, self.model
        seen: list[int] = []
        locks: list[int] = []
        for item in window.segments():
            for offset in range(item.first, item.last + 1):
                seen.append(offset)
                entry = model.entries[offset]
                assert entry.state is item.state, offset
                assert entry.count == item.count, offset
                assert bool(entry.write) == (item.write is not None), offset
                if entry.state is ACQUIRED:
                    assert item.lock is not None
                    held = (item.lock.member_id, item.lock.deadline_ms)
                    assert (entry.member, entry.deadline_ms) == held
                    locks.append(entry.deadline_ms)
        assert seen == list(model.entries)
        assert (window.start_offset, window.end_offset) == (model.start, model.end)
        assert window.start_offset >= self.lowest_start
        self.lowest_start = window.start_offset
        assert window.delivery_complete_count == model.complete
        assert window.position == model.position
        if locks:
            assert window.next_deadline_ms is not None
            assert window.next_deadline_ms <= min(locks)
        else:
            assert window.next_deadline_ms is None
        assert self.log_end - window.start_offset - window.delivery_complete_count >= 0

    def drain(self) -> None:
        """Let everything end, and deliver the rest: no record may have been skipped."""
        self.sync()
        for member in MEMBERS:
            self.release_all(member)
            self.store()
        self.sync()
        self.settings = self.settings._replace(delivery_count_limit=25)
        self.window.settings = self.settings
        for _ in range(self.log_end + 10_000):
            self.acquire("a")
            held = [
                acknowledgement(offset, offset, ACCEPT)
                for offset, entry in self.model.entries.items()
                if entry.state is ACQUIRED and not entry.write
            ]
            if held:
                assert self.window.acknowledge("a", self.now_ms, held) is None
                self.apply(held)
                self.store()
            self.sync()
            self.write_dead_letters(len(self.dead_letters))
            self.compare()
            if not any(batch.last_offset >= self.window.start_offset for batch in self.log):
                break
        else:
            raise AssertionError("the window does not end")
        expected = set(range(self.log_start, self.log_end)) - self.lost - self.compacted
        assert expected <= self.delivered
        assert {offset for offset in self.due if offset >= self.log_start} <= self.lettered


def acknowledgement(first: int, last: int, *types: int) -> AcknowledgementBatch:
    return AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))


def update_of(change: StateWrite) -> StateRecord:
    """Encode a change as an update of the first snapshot."""
    write = PendingWrite()
    write.change = change
    writer = StateWriter(KEY, initialized(KEY, 0, 1, 0)[1])
    return writer.record(write, Window(WindowSettings(), 0), 0, updates_per_snapshot=500)


def expanded(batches: Sequence[StateBatch]) -> Stored:
    """Return the state and count of each offset of disjoint batches."""
    result: Stored = {}
    for first, last, state, count in batches:
        for offset in range(first, last + 1):
            assert offset not in result
            result[offset] = (state, count)
    return result


def _aborted(read: Sequence[LogBatch]) -> set[int]:
    return {
        offset
        for batch in read
        if batch.is_aborted
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }
