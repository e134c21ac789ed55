"""Compaction of random logs, also when it is interrupted anywhere."""

import errno
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from kohort.broker.storage.compaction.cleaner import Compaction, plan_compaction
from kohort.broker.storage.errors import CorruptBatchError, StorageError
from kohort.broker.storage.log.log import PartitionLog
from kohort.protocol.records.batch import CompressionType, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record, decode_records
from kohort.testing.simulated_filesystem import SimulatedFileSystem
from tests.support.records.storage_tools import (
    WALL_MS,
    append,
    memory_log,
    open_log,
    read_all,
    settings,
)
from tests.support.suites.examples import examples

HOUR_MS = 3_600_000
RETENTION_MS = 24 * HOUR_MS
CONFIG = {
    "cleanup_policy": ("compact",),
    "segment_bytes": 900,
    "min_cleanable_dirty_ratio": 0.0,
    "delete_retention_ms": RETENTION_MS,
}

KEYS = st.sampled_from([b"a", b"b", b"c", b"a key that is longer than its hash", None])
VALUES = st.one_of(st.none(), st.binary(max_size=40))
Contents = tuple[list[tuple[bytes | None, bytes | None]], CompressionType, bool]
"""Keys and values of a batch, its codec, and whether its producer is idempotent."""
BATCHES = st.lists(
    st.tuples(
        st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6),
        st.sampled_from([CompressionType.NONE, CompressionType.GZIP]),
        st.booleans(),
    ),
    min_size=1,
    max_size=25,
)


@dataclass
class Keyed:
    """A log of keyed records and what was written to it."""

    log: PartitionLog
    files: SimulatedFileSystem
    records: list[Record] = field(default_factory=list)
    first_dirty_offset: int = 0
    sequence: int = 0

    def write(self, batches: Iterable[Contents]) -> None:
        for contents, codec, is_idempotent in batches:
            start = self.log.log_end_offset
            records = [
                Record(value, key, (("h", b"x"),), WALL_MS + start + number, start + number)
                for number, (key, value) in enumerate(contents)
            ]
            batch = encode_batch(
                records,
                codec=codec,
                producer_id=5 if is_idempotent else -1,
                producer_epoch=0 if is_idempotent else -1,
                base_sequence=self.sequence if is_idempotent else -1,
            )
            self.sequence += len(records) if is_idempotent else 0
            append(self.log, batch)
            self.records += records

    def compact(self, *, memory_bytes: int = 1 << 20, wall_ms: int = WALL_MS) -> bool:
        end_offset = self.log.log_end_offset
        plan = plan_compaction(
            self.log,
            first_dirty_offset=self.first_dirty_offset,
            up_to_offset=end_offset,
            wall_ms=wall_ms,
        )
        if plan is None:
            return False
        run = Compaction(self.log, plan, memory_bytes=memory_bytes, wall_ms=wall_ms)
        try:
            while run.work():
                run.swap(wall_ms=wall_ms)
        finally:
            run.close()
        self.first_dirty_offset = run.cleaned_up_to
        return True

    def kept(self) -> list[Record]:
        return [record for batch in read_all(self.log) for record in decode_records(batch)]

    def latest(self, records: Iterable[Record]) -> dict[bytes | None, Record]:
        return {record.key: record for record in records if record.key is not None}

    def dirty(self, records: Iterable[Record]) -> list[Record]:
        """Records with a key that no compaction has looked at; the others may go at any time."""
        return [
            record
            for record in records
            if record.offset >= self.first_dirty_offset and record.key is not None
        ]

    def check(self, *, is_finished: bool = True) -> None:
        """What is true after any number of compactions while tombstones stay."""
        kept = self.kept()
        written = {record.offset: record for record in self.records}
        assert all(written[record.offset] == record for record in kept)
        assert [record.offset for record in kept] == sorted({record.offset for record in kept})
        assert self.latest(kept) == self.latest(self.records)
        if is_finished:
            assert self.dirty(kept) == self.dirty(self.records)
        expected = self.log.log_start_offset
        for batch in read_all(self.log):
            header = read_header(batch)
            assert header.base_offset == expected
            expected = header.next_offset
        assert expected == self.log.log_end_offset

    def check_clean(self) -> None:
        """Below the first dirty offset every key occurs once."""
        clean = [record for record in self.kept() if record.offset < self.first_dirty_offset]
        assert None not in {record.key for record in clean}
        assert len({record.key for record in clean}) == len(clean)


def new_log() -> Keyed:
    return Keyed(*memory_log(**CONFIG))


@hypothesis_settings(deadline=None, max_examples=examples(50))
@given(rounds=st.lists(BATCHES, min_size=1, max_size=4), reopen=st.booleans())
def test_every_key_keeps_its_latest_record_and_no_other(
    rounds: list[list[Contents]], reopen: bool
) -> None:
    keyed = new_log()
    for batches in rounds:
        keyed.write(batches)
        if keyed.compact():
            keyed.check_clean()
            assert keyed.first_dirty_offset == keyed.log.segments[-1].base_offset
        keyed.check()
        if reopen:
            keyed.log.close()
            keyed.log = open_log(keyed.files, config=settings(**CONFIG))
            keyed.check()
    producer = keyed.log.producers.get(5)
    if keyed.sequence:
        assert producer is not None
        assert producer.batches[-1].last_sequence == keyed.sequence - 1


@hypothesis_settings(deadline=None, max_examples=examples(50))
@given(batches=BATCHES, memory_bytes=st.integers(0, 1500))
def test_with_little_memory_a_run_gets_less_far_and_the_next_goes_on(
    batches: list[Contents], memory_bytes: int
) -> None:
    keyed = new_log()
    keyed.write(batches)
    while True:
        before = keyed.first_dirty_offset
        if not keyed.compact(memory_bytes=memory_bytes):
            break
        assert keyed.first_dirty_offset > before
        keyed.check()


@hypothesis_settings(deadline=None, max_examples=examples(50))
@given(batches=BATCHES)
def test_tombstones_go_when_their_time_is_over_and_not_before(
    batches: list[Contents],
) -> None:
    keyed = new_log()
    keyed.write(batches)
    keyed.log.roll(wall_ms=WALL_MS)
    latest = keyed.latest(keyed.records)
    keyed.compact()
    keyed.check()
    later: list[Contents] = [([(b"other", b"x" * 1000)], CompressionType.NONE, False)]
    keyed.write(later)
    keyed.compact(wall_ms=WALL_MS + RETENTION_MS - 1)
    keyed.check()
    keyed.write(later)
    keyed.compact(wall_ms=WALL_MS + RETENTION_MS)
    expected = {key: record for key, record in latest.items() if record.value is not None}
    kept = keyed.latest(keyed.kept())
    kept.pop(b"other", None)
    assert kept == expected


def sample() -> Keyed:
    keyed = new_log()
    random = Random(1)
    keys = [b"a", b"b", b"c", b"d"]
    keyed.write(
        ([(random.choice(keys), b"v%d" % number * 3)], CompressionType.NONE, number % 3 == 0)
        for number in range(60)
    )
    keyed.log.flush()
    assert len(keyed.log.segments) > 4
    return keyed


@pytest.mark.parametrize(
    ("operation", "suffix"),
    [
        ("create", ".cleaned"),
        ("pwritev", ".cleaned"),
        ("sync", ".cleaned"),
        ("pread", ".log"),
        ("sync_directory", ""),
        ("rename", ".cleaned"),
        ("rename", ".log"),
        ("rename", ".timeindex"),
        ("rename", ".swap"),
    ],
)
@pytest.mark.parametrize("stop", ["none", "kill", "power loss"])
def test_a_compaction_that_fails_anywhere_loses_nothing(
    operation: str, suffix: str, stop: str
) -> None:
    for after in [*range(12), *range(12, 2000, 23)]:
        keyed = sample()
        end_offset = keyed.log.log_end_offset
        keyed.files.fail(operation, suffix=suffix, number=errno.EIO, after=after)  # type: ignore[arg-type]
        try:
            keyed.compact()
        except StorageError:
            keyed.first_dirty_offset = 0
        was_met = not keyed.files.has_faults
        keyed.files.clear_faults()
        if stop == "power loss":
            keyed.files.lose_power(Random(after).randrange)
        if stop != "none" or keyed.log.failed:
            keyed.log = open_log(
                keyed.files, clean=False, recovery_point=end_offset, config=settings(**CONFIG)
            )
        assert keyed.log.log_end_offset == end_offset
        keyed.check(is_finished=False)
        keyed.compact()
        keyed.check()
        keyed.check_clean()
        names = [entry.name for entry in keyed.files.entries("/data/t-0")]
        assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
        if not was_met:
            return
    raise AssertionError("the fault was met to the end")


def test_a_damaged_batch_stops_the_compaction_before_its_segment() -> None:
    keyed = sample()
    keyed.log.close()
    keyed.log = open_log(keyed.files, config=settings(**CONFIG))
    damaged = keyed.log.segments[2]
    keyed.files.flip(damaged.path(".log"), 70, 1)
    with pytest.raises(CorruptBatchError):
        keyed.compact()
    assert keyed.compact()
    assert keyed.first_dirty_offset == damaged.base_offset


def test_segments_deleted_during_a_compaction_do_not_come_back() -> None:
    keyed = sample()
    log = keyed.log
    plan = plan_compaction(log, first_dirty_offset=0, up_to_offset=60, wall_ms=WALL_MS)
    assert plan is not None
    run = Compaction(log, plan, memory_bytes=1 << 20, wall_ms=WALL_MS)
    start = log.segments[2].base_offset
    assert run.work()
    log.delete_records_before(start, wall_ms=WALL_MS)
    run.swap(wall_ms=WALL_MS)
    while run.work():
        run.swap(wall_ms=WALL_MS)
    run.close()
    keyed.first_dirty_offset = run.cleaned_up_to
    keyed.check_clean()
    assert log.segments[0].base_offset == start
    assert all(record.offset >= start for record in keyed.kept())
    again = open_log(keyed.files, clean=False, recovery_point=60, config=settings(**CONFIG))
    assert again.log_start_offset == start
