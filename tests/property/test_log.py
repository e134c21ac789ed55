"""A log against a list of batches, through kills, power losses, full disks and failing fsyncs."""

import errno
from bisect import bisect_right
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from kohort.broker.storage.errors import OffsetOutOfRangeError, StorageError
from kohort.broker.storage.log.log import PartitionLog
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import (
    WALL_MS,
    append,
    batch_of,
    open_log,
    read_all,
    stored,
)
from tests.support.records.storage_tools import settings as log_settings
from tests.support.suites.examples import examples


class LogMachine(RuleBasedStateMachine):
    """The model: the bytes of every batch ever appended, by base offset, and what is promised."""

    @initialize()
    def start(self) -> None:
        self.files = SimulatedFileSystem()
        self.files.make_directory("/data")
        self.log: PartitionLog = open_log(self.files)
        self.batches: dict[int, bytes] = {}
        self.timestamps: list[tuple[int, int]] = []
        """(offset, timestamp) of every record."""
        self.end = 0
        self.start_offset = 0
        self.durable = 0
        """Everything below must survive a power loss."""

    def reopen(self, *, clean: bool) -> None:
        self.log = open_log(
            self.files,
            clean=clean,
            recovery_point=0 if clean else self.durable,
            log_start_offset=self.start_offset,
        )

    def forget_from(self, end: int) -> None:
        assert end == 0 or any(base < end <= self.end for base in [*self.batches, self.end])
        self.batches = {base: batch for base, batch in self.batches.items() if base < end}
        self.timestamps = [entry for entry in self.timestamps if entry[0] < end]
        self.end = end
        self.start_offset = min(self.start_offset, end)
        self.durable = end

    @rule(
        sizes=st.lists(st.integers(0, 400), min_size=1, max_size=5),
        timestamp=st.one_of(st.just(-1), st.integers(0, 100)),
    )
    def append_batch(self, sizes: list[int], timestamp: int) -> None:
        batch = batch_of(*(b"v" * size for size in sizes), timestamp=timestamp)
        appended = append(self.log, batch)
        self.note(batch, appended.base_offset, len(sizes), timestamp)
        assert appended.last_offset == self.end - 1

    def note(self, batch: bytes, base_offset: int, count: int, timestamp: int) -> None:
        assert base_offset == self.end
        self.batches[base_offset] = stored(batch, base_offset)
        self.timestamps += [(base_offset + number, timestamp + number) for number in range(count)]
        self.end += count

    @rule(count=st.integers(5, 30))
    def append_many(self, count: int) -> None:
        for number in range(count):
            self.append_batch([number * 3], number)

    @rule(room=st.integers(0, 600), undo_fails=st.booleans())
    def append_to_a_full_disk(self, room: int, undo_fails: bool) -> None:
        self.files.space_left = room
        if undo_fails:
            self.files.fail("truncate", suffix=".log", number=errno.EIO)
        batch = batch_of(b"v" * 500)
        try:
            appended = append(self.log, batch)
        except StorageError:
            if self.log.failed:
                with pytest.raises(StorageError):
                    append(self.log, batch)
                self.files.space_left = None
                self.kill()
        else:
            self.note(batch, appended.base_offset, 1, WALL_MS)
        self.files.space_left = None
        self.files.clear_faults()

    @rule()
    def flush(self) -> None:
        self.log.flush()
        assert self.log.flushed_offset == self.end
        self.durable = self.end

    @rule(seed=st.integers(0, 2**32))
    def fail_to_flush(self, seed: int) -> None:
        self.append_batch([10], 5)
        self.files.fail("sync", suffix=".log", number=errno.EIO)
        with pytest.raises(StorageError):
            self.log.flush()
        with pytest.raises(StorageError):
            self.log.flush()
        with pytest.raises(StorageError):
            append(self.log, batch_of(b"v"))
        self.files.clear_faults()
        assert self.log.flushed_offset == self.durable
        self.reopen_after_power_loss(seed)

    @rule()
    def roll(self) -> None:
        self.log.roll(wall_ms=WALL_MS)

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.durable = self.end
        self.reopen(clean=True)

    @rule()
    def kill(self) -> None:
        self.reopen(clean=False)
        assert self.log.log_end_offset == self.end
        self.durable = self.end

    @rule(cut=st.integers(1, 900))
    def kill_in_the_middle_of_an_append(self, cut: int) -> None:
        batch = batch_of(b"torn" * 300)
        active = self.log.segments[-1]
        size = active.size_bytes
        append(self.log, batch)
        torn = self.log.segments[-1]
        torn.log.truncate((size if torn is active else 0) + cut)
        self.reopen(clean=False)
        assert self.log.log_end_offset == self.end
        self.durable = self.end

    @rule(seed=st.integers(0, 2**32))
    def reopen_after_power_loss(self, seed: int) -> None:
        self.files.lose_power(Random(seed).randrange)
        self.reopen(clean=False)
        assert self.durable <= self.log.log_end_offset <= self.end
        self.forget_from(self.log.log_end_offset)

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(0, self.end), label="offset")
        self.start_offset = max(self.start_offset, offset)
        assert self.log.delete_records_before(offset, wall_ms=WALL_MS) == self.start_offset
        assert self.log.segments[0].base_offset <= self.start_offset
        if len(self.log.segments) > 1:
            assert self.log.segments[1].base_offset > self.start_offset or (
                self.log.segments[1].base_offset == self.start_offset == self.end
            )
        with pytest.raises(OffsetOutOfRangeError):
            self.log.delete_records_before(self.end + 1, wall_ms=WALL_MS)

    @rule(kept_bytes=st.integers(0, 20_000))
    def enforce_retention_by_size(self, kept_bytes: int) -> None:
        self.log.config = log_settings(retention_bytes=kept_bytes, retention_ms=-1)
        self.log.enforce_retention(wall_ms=WALL_MS, up_to_offset=self.end)
        first = self.log.segments[0]
        assert self.log.size_bytes >= kept_bytes or first.base_offset <= self.start_offset
        assert self.log.size_bytes - first.size_bytes < kept_bytes or first.size_bytes == 0
        self.start_offset = max(self.start_offset, first.base_offset)
        self.log.remove_deleted_files(wall_ms=WALL_MS + 60_000)

    @precondition(lambda self: self.batches)
    @rule(data=st.data(), max_bytes=st.integers(0, 5000), min_one=st.booleans())
    def read_somewhere(self, data: st.DataObject, max_bytes: int, min_one: bool) -> None:
        offset = data.draw(st.integers(self.start_offset, self.end), label="offset")
        ends = [base for base in self.batches if base >= offset]
        up_to = data.draw(st.sampled_from([*ends, self.end]), label="up to")
        got = self.log.read(offset, max_bytes, up_to_offset=up_to, min_one=min_one)
        bases = sorted(self.batches)
        expected = b""
        for base in bases[max(0, bisect_right(bases, offset) - 1) :]:
            batch = self.batches[base]
            if base >= up_to or offset >= up_to:
                break
            if len(expected) + len(batch) > max_bytes and (expected or not min_one):
                break
            if len(got) <= len(expected) and expected:
                break  # A read ends with the segment.
            expected += batch
        assert got == expected

    @precondition(lambda self: self.timestamps)
    @rule(timestamp=st.integers(-1, 140))
    def look_up_a_timestamp(self, timestamp: int) -> None:
        found = self.log.offset_for_timestamp(timestamp, up_to_offset=self.end)
        visible = [entry for entry in self.timestamps if entry[0] >= self.start_offset]
        expected = next((entry for entry in visible if entry[1] >= timestamp), None)
        assert expected == (None if found is None else (found.offset, found.timestamp))

    @invariant()
    def everything_is_there(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.log_end_offset == self.end
        assert self.log.log_start_offset == self.start_offset
        assert self.log.flushed_offset <= self.end
        bases = sorted(self.batches)
        first = max(0, bisect_right(bases, self.start_offset) - 1)
        visible = (
            [self.batches[base] for base in bases[first:]] if self.start_offset < self.end else []
        )
        assert read_all(self.log) == visible


LogMachine.TestCase.settings = settings(max_examples=examples(100), stateful_step_count=30)
TestLogAgainstAList = LogMachine.TestCase
