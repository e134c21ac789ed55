"""The life of one compacted log, beside a model that remembers every record.

Everything that meets in a compaction happens in it, in the order that a seed gives: maps of a few
keys, appends and reads between the steps of a run, runs that are broken off, kills and power losses
at any operation on a file, a disk that fails, records that are deleted from the front, and time.
"""

import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Final, cast

from kohort.broker.storage.compaction.cleaner import Compaction, plan_compaction
from kohort.broker.storage.compaction.key_offsets import KEY_MEMORY_BYTES
from kohort.broker.storage.errors import OffsetOutOfRangeError, StorageError
from kohort.broker.storage.log.log import PartitionLog
from kohort.protocol.records.batch import CompressionType, split_batches
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record, decode_records
from kohort.testing.simulated_filesystem import Operation, SimulatedFileSystem
from tests.support.records.storage_tools import WALL_MS, append, memory_log, open_log, settings

OPERATIONS: Final[tuple[Operation, ...]] = (
    "create", "pread", "pwritev", "sync", "sync_directory", "rename", "remove",
)  # fmt: skip
KEYS: Final = [b"a", b"b", b"c", b"d", b"e", b"a key that is longer than its hash"]
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
FAR_TIMESTAMPS: Final = [
    *(INT64_MIN, INT64_MIN + 1, -(1 << 62), -2, -1, 0, 1 << 62, INT64_MAX - 1, INT64_MAX),
    # A batch can hold the horizon of a day, but no timestamp that is so much earlier.
    *(WALL_MS + INT64_MIN, WALL_MS + INT64_MIN + 60_001),
]
"""Timestamps that a topic may accept, and no clock has."""


class Killed(BaseException):
    """The process ends here."""


@dataclass
class Reader:
    """A consumer that rebuilds a table: it may start anywhere."""

    start_offset: int
    started_ms: int
    position: int
    table: dict[bytes, bytes | None] = field(default_factory=dict)


class CompactedLife:
    """See the module. Every method may raise AssertionError."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.wall_ms = WALL_MS
        self.delete_retention_ms = random.choice(
            [0, 60_000, 1_000_000, 60_000, 1 << 62, INT64_MAX - WALL_MS, INT64_MAX]
        )
        self.has_far_timestamps = random.random() < 0.4
        self.min_lag_ms = random.choice([0, 0, 30_000])
        self.config = settings(
            cleanup_policy=("compact",),
            segment_bytes=random.choice([400, 900, 2500]),
            min_cleanable_dirty_ratio=random.choice([0.0, 0.3]),
            delete_retention_ms=self.delete_retention_ms,
            min_compaction_lag_ms=self.min_lag_ms,
            max_compaction_lag_ms=random.choice([100_000, 1 << 62, INT64_MAX]),
            file_delete_delay_ms=5000,
        )
        self.log: PartitionLog
        self.files: SimulatedFileSystem
        self.log, self.files = memory_log()
        self.log.config = self.config
        self.written: list[Record] = []
        """By offset: every record that the log was given and did not lose in a power loss."""
        self.first_dirty_offset = 0
        """The checkpoint."""
        self.covered_ms: dict[int, int] = {}
        """Offset of a tombstone -> start of the first run whose map knew it."""
        self.run: Compaction | None = None
        self.run_started_ms = 0
        self.longest_run_ms = 0
        self.sequences = {7: 0, 8: 0}
        self.readers: list[Reader] = []
        self.counts: dict[str, int] = {}
        """What happened how often."""
        self._was_killed = False
        self._choices: list[Callable[[], None]] = []
        self._weights: list[int] = []
        for weight, act in (
            (44, self.append), (12, self.pass_time), (26, self.work), (8, self.read),
            (3, self.roll), (2, self.flush), (1, self.delete_records), (1, self.break_off),
            (1, self.remove_files), (2, self.stop), (2, self.fail),
        ):  # fmt: skip
            self._choices.append(act)
            self._weights.append(weight)

    def step(self) -> None:
        (act,) = self.random.choices(self._choices, self._weights)
        act()

    def finish(self) -> None:
        """Compact until there is nothing to do, and look at the result."""
        if self.run is None and not self._start_run():
            self.pass_time()
        while self.run is not None or self._start_run():
            self.work()
        self.check()

    # What may happen.

    def append(self) -> None:
        random, records = self.random, self._records(self._timestamps())
        producer_id = random.choice([-1, -1, -1, 7, 8])
        batch = encode_batch(
            records,
            codec=CompressionType.GZIP if random.random() < 0.05 else CompressionType.NONE,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=self.sequences.get(producer_id, -1),
        )
        append(self.log, batch, wall_ms=self.wall_ms)
        if producer_id >= 0:
            self.sequences[producer_id] += len(records)
        self.written += records

    def _records(self, timestamps: list[int]) -> list[Record]:
        random, first = self.random, self.log.log_end_offset
        return [
            Record(
                None if random.random() < 0.3 else b"%d" % random.randrange(1000),
                random.choice(KEYS) if random.random() < 0.98 else None,
                (("h", b"x"),),
                timestamp,
                first + number,
            )
            for number, timestamp in enumerate(timestamps)
        ]

    def _timestamps(self) -> list[int]:
        """Timestamps of one batch: mostly of now, and never further apart than it can hold."""
        random = self.random
        count = random.randrange(1, 4)
        if self.has_far_timestamps and random.random() < 0.15:
            far = random.choice(FAR_TIMESTAMPS)
            self._count("far timestamps")
            return [min(max(far + random.randrange(-1, 2), INT64_MIN), INT64_MAX)] * count
        return [self.wall_ms - random.randrange(1000) for _ in range(count)]

    def pass_time(self) -> None:
        """A little during a run; else perhaps as long as tombstones stay."""
        duration_ms = self.random.choice([1, 100])
        if self.run is None:
            retention_ms = min(self.delete_retention_ms, 1_000_000)
            duration_ms = self.random.choice([100, 10_000, 50_000, retention_ms + 1])
        self.wall_ms += duration_ms

    def roll(self) -> None:
        self.log.roll(wall_ms=self.wall_ms)

    def flush(self) -> None:
        self.log.flush()

    def remove_files(self) -> None:
        self.log.remove_deleted_files(wall_ms=self.wall_ms)

    def delete_records(self) -> None:
        self._count("records deleted")
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = start + int((end - start) * self.random.random() ** 2)
        self.log.delete_records_before(offset, wall_ms=self.wall_ms)

    def work(self) -> None:
        run = self.run
        if run is None:
            self._start_run()
            return
        for _ in range(self.random.randrange(1, 4)):
            goes_on = run.work()
            self._note_covered(run)
            if not goes_on:
                self._end_run(run)
                return
            if self.random.random() < 0.1:
                # Between a replacement and its turn.
                self.random.choice([self.delete_records, self.read, self.append])()
            run.swap(wall_ms=self.wall_ms)

    def break_off(self) -> None:
        if self.run is not None:
            self._count("broken off")
            self.run.close()
            self.run = None

    def fail(self) -> None:
        if self.run is None and not self._start_run():
            return
        number = self.random.choice([errno.ENOSPC, errno.EIO])
        operation = self.random.choice(OPERATIONS)
        after = self.random.randrange(1, 60)
        self.files.fail(operation, suffix="", number=number, after=after)
        try:
            while self.run is not None:
                self.work()
        except StorageError:
            self._count("failed")
            self.break_off()
        self.files.clear_faults()
        if self.log.failed:
            # A failed sync loses what it was to write.
            self._count("log failed")
            self._reopen(self.files.copy(), self.log.flushed_offset, has_lost_power=True)
        self.check()

    def stop(self) -> None:
        """Kill the process at some operation of a run, perhaps with a power loss, or as it is."""
        if self.run is None and self.random.random() < 0.8:
            self._start_run()
        flushed_offset = self.log.flushed_offset
        left = self._killed_in(self.random.randrange(1, 80), self._work_on)
        flushed_offset = max(flushed_offset, self.log.flushed_offset)
        self.run = None
        has_lost_power = False
        while True:
            if self.random.random() < 0.5:
                has_lost_power = True
                left.lose_power(self.random.randrange)
            self.files = left
            # The start may be killed as well.
            limit = self.random.choice([1 << 60, self.random.randrange(1, 40)])
            reopen = partial(self._reopen, left, flushed_offset, has_lost_power=has_lost_power)
            reopened = self._killed_in(limit, reopen)
            if not self._was_killed:
                break
            left = reopened
        self.check()

    # How it happens.

    def stable_offset(self) -> int:
        """Where everything is decided; there are no transactions here."""
        return self.log.log_end_offset

    def _start_run(self) -> bool:
        plan = plan_compaction(
            self.log,
            first_dirty_offset=self.first_dirty_offset,
            up_to_offset=self.stable_offset(),
            wall_ms=self.wall_ms,
        )
        if plan is None:
            return False
        # The compactor of a broker has damaged indexes rebuilt first, in another thread.
        for segment in self.log.aborted.unready(plan.segments[0].base_offset):
            repair = self.log.aborted.repair(segment)
            repair.run()
            repair.take_over()
        key_count = self.random.choice([1, 2, 3, 5, 10, 1000])
        self.run = Compaction(
            self.log,
            plan,
            memory_bytes=int((key_count + 0.5) * KEY_MEMORY_BYTES),
            wall_ms=self.wall_ms,
        )
        self.run_started_ms = self.wall_ms
        return True

    def _end_run(self, run: Compaction) -> None:
        run.close()
        assert run.cleaned_up_to > run._plan.first_dirty_offset, "a run gets on"
        self._count("runs" if run.cleaned_up_to == run._plan.end_offset else "short runs")
        self.first_dirty_offset = run.cleaned_up_to
        self.run = None
        self.longest_run_ms = max(self.longest_run_ms, self.wall_ms - self.run_started_ms)
        clean = [key for key in map(self._key_of, self.check()) if key is not _DIRTY]
        assert None not in clean
        assert len(set(clean)) == len(clean), "below the first dirty offset every key occurs once"

    def _key_of(self, record: Record) -> bytes | None:
        return record.key if record.offset < self.first_dirty_offset else _DIRTY

    def _work_on(self) -> None:
        while self.run is not None:
            self.work()

    def _note_covered(self, run: Compaction) -> None:
        for offset in range(run._plan.first_dirty_offset, run.cleaned_up_to):
            if self.written[offset].value is None:
                self.covered_ms.setdefault(offset, self.run_started_ms)

    def _killed_in(self, operation_count: int, work: Callable[[], None]) -> SimulatedFileSystem:
        """What another process finds when this one is killed at that operation of `work`."""
        files, left = self.files, operation_count
        found: list[SimulatedFileSystem] = []

        def count_down(_: Operation) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                files.on_operation = None
                found.append(files.copy())
                raise Killed

        self._was_killed = False
        files.on_operation = count_down
        try:
            work()
        except Killed:
            self._was_killed = True
            self._count("killed")
            return found[0]
        finally:
            files.on_operation = None
        return files.copy()

    def _reopen(
        self, files: SimulatedFileSystem, flushed_offset: int, *, has_lost_power: bool
    ) -> None:
        start_offset = self.log.log_start_offset
        self.files = files
        self.log = open_log(
            files,
            clean=False,
            recovery_point=flushed_offset,
            log_start_offset=start_offset,
            config=self.config,
        )
        end_offset = self.log.log_end_offset
        if has_lost_power:
            self._count("power lost")
        else:
            assert end_offset == len(self.written)
        assert flushed_offset <= end_offset <= len(self.written)
        assert self.first_dirty_offset <= end_offset
        assert self.log.log_start_offset == start_offset or end_offset < start_offset
        if end_offset < len(self.written):
            self._count("end lost")
            del self.written[end_offset:]
            self.readers.clear()
            self.covered_ms = {
                offset: since for offset, since in self.covered_ms.items() if offset < end_offset
            }
        sequences = {
            producer_id: self._next_sequence(producer_id) for producer_id in self.sequences
        }
        assert has_lost_power or sequences == self.sequences
        self.sequences = sequences
        names = [entry.name for entry in files.entries("/data/t-0")]
        assert not [name for name in names if name.endswith((".swap", ".cleaned"))]

    def _next_sequence(self, producer_id: int) -> int:
        producer = self.log.producers.get(producer_id)
        return producer.batches[-1].last_sequence + 1 if producer and producer.batches else 0

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # What consumers see.

    def read(self) -> None:
        """Let a consumer read on, and compare its table when it is at the end."""
        log, random = self.log, self.random
        if len(self.readers) < 4:
            span = log.log_end_offset - log.log_start_offset
            offset = log.log_start_offset + int(span * random.random() ** 3)
            self.readers.append(Reader(offset, self.wall_ms, offset))
        reader = random.choice(self.readers)
        run_ms = self.wall_ms - self.run_started_ms if self.run is not None else 0
        # The time of tombstones counts from the start of the run that replaces what they delete.
        patience_ms = self.delete_retention_ms - max(run_ms, self.longest_run_ms)
        if self.wall_ms - reader.started_ms >= patience_ms:
            self.readers.remove(reader)
            return
        try:
            self._read_on(reader, random.choice([100, 300, 2000, 100_000]))
        except OffsetOutOfRangeError:
            self.readers.remove(reader)
            return
        if reader.position == self.stable_offset():
            self._count("tables compared")
            self.readers.remove(reader)
            for key, latest in self._latest(reader.start_offset).items():
                assert reader.table.get(key) == latest.value, (reader, key, latest)

    def _read_on(self, reader: Reader, byte_count: int) -> None:
        log = self.log
        while byte_count > 0 and reader.position < log.log_end_offset:
            data = log.read(reader.position, 200, up_to_offset=log.log_end_offset, min_one=True)
            for header, batch in split_batches(data):
                for record in decode_records(batch, header):
                    if record.offset >= reader.start_offset and record.key is not None:
                        reader.table[record.key] = record.value
                reader.position = header.next_offset
            byte_count -= len(data)

    def _latest(self, from_offset: int) -> dict[bytes, Record]:
        found = {}
        for offset in range(from_offset, len(self.written)):
            record = self.written[offset]
            if record.key is not None:
                found[record.key] = record
        return found

    def check(self) -> list[Record]:
        """Compare what is in the log with what was written; returns what is in it."""
        kept = self._kept()
        self._check_latest({one.key: one for one in kept if one.key is not None})
        self._check_gone({record.offset for record in kept})
        return kept

    def _kept(self) -> list[Record]:
        """The records in the log, each as it was written, without a gap between batches."""
        log = self.log
        start = expected = position = log.log_start_offset
        kept: list[Record] = []
        while position < log.log_end_offset:
            data = log.read(position, 1 << 20, up_to_offset=log.log_end_offset, min_one=True)
            assert data
            for header, batch in split_batches(data):
                # The first may begin below the start of the log.
                assert header.base_offset == expected or header.base_offset < expected == start
                position = expected = header.next_offset
                if header.record_count and not header.is_control:
                    kept += decode_records(batch, header)
        kept = [record for record in kept if record.offset >= start]
        offsets = [record.offset for record in kept]
        assert offsets == sorted(set(offsets))
        assert all(self.written[record.offset] == record for record in kept)
        return kept

    def _check_latest(self, found: dict[bytes, Record]) -> None:
        for key, latest in self._latest(self.log.log_start_offset).items():
            if found.get(key) == latest:
                continue
            assert key not in found, f"{found[key]} is not {latest}"
            assert latest.value is None, f"{latest} is lost"
            covered_ms = self.covered_ms.get(latest.offset)
            assert covered_ms is not None
            assert covered_ms + self.delete_retention_ms <= self.wall_ms, f"{latest} went too early"

    def _check_gone(self, kept: set[int]) -> None:
        if not self.min_lag_ms:
            return
        for offset in range(self.log.log_start_offset, len(self.written)):
            if offset not in kept:
                assert self.written[offset].timestamp <= self.wall_ms - self.min_lag_ms


_DIRTY = cast("bytes", object())
