"""Compaction of damaged batches behind a right checksum, and of extreme times.

A producer decides what a log contains, and each log has its own settings; none of both may end a
compaction or change a record that stays.
"""

import os
import random
import struct
import time
from collections import Counter
from typing import Final

import pytest

from kohort.broker.core.partition.validation import (
    check_envelope,
    check_header,
    only_batch,
    validate,
)
from kohort.broker.core.partition.verdict import RejectionError, ValidBatch
from kohort.broker.storage.compaction.cleaner import Compaction, plan_compaction
from kohort.broker.storage.errors import CorruptBatchError
from kohort.broker.storage.log.log import PartitionLog
from kohort.protocol.errors import DecodeError
from kohort.protocol.records.batch import CompressionType, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.crc import crc32c
from kohort.protocol.records.record import Record, decode_records
from tests.support.records.produced import COMPACTED, NOW, PLAIN, STAMPING, TERMS
from tests.support.records.storage_tools import append, memory_log, read_all

CRC_AT: Final = 17
CHECKED_FROM: Final = 21
"""Where in a batch its checksum lies, and where begins what that is of."""
BATCH_HEADER_BYTES: Final = 61
BATCH_FIELDS: Final = (
    *((0, "q"), (12, "i"), (16, "b"), (21, "h"), (23, "i"), (27, "q")),
    *((35, "q"), (43, "q"), (51, "h"), (53, "i"), (57, "i")),
)
"""Where a batch has numbers, and how wide they are: offset, leader epoch, magic, attributes, last
offset delta, times, producer, its epoch and sequence, count."""

LOGS_SHORT: Final = 400
LOGS_LONG: Final = 15_000

LONG_MAX: Final = (1 << 63) - 1
TIMESTAMPS: Final = (-1, 0, 1, NOW - LONG_MAX, NOW - LONG_MAX + 60_000, -2, -(1 << 62), NOW)
"""Extremes of what is accepted by default."""

CONFIGS: Final[dict[str, tuple[object, ...]]] = {
    "delete_retention_ms": (0, 1, 1000, 86_400_000, 1 << 62, LONG_MAX - NOW, LONG_MAX),
    "file_delete_delay_ms": (0, LONG_MAX),
    "index_interval_bytes": (0, 300, (1 << 31) - 1),
    "max_compaction_lag_ms": (1, LONG_MAX),
    "min_compaction_lag_ms": (0, 0, 0, 1),
    "segment_bytes": (14, 100, 600, (1 << 31) - 1),
    "segment_index_bytes": (4, 12, (1 << 31) - 1),
    "segment_ms": (1, LONG_MAX),
    "segment_jitter_ms": (0, LONG_MAX),
    "min_cleanable_dirty_ratio": (0.0, 0.0, 1.0),
}
CODECS: Final = (*[CompressionType.NONE] * 4, *CompressionType)


class DamagedLog:
    """A log of one seed: what was appended, and what has to be left of it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.counts: Counter[str] = Counter()
        self.topic = rng.choice([PLAIN, COMPACTED, STAMPING])
        config = {name: rng.choice(values) for name, values in CONFIGS.items()}
        self.log: PartitionLog
        self.log, _ = memory_log(cleanup_policy=("compact",), **config)
        self.wall_ms = NOW
        self.first_dirty_offset = 0
        self.written: dict[int, Record] = {}
        """Records of readable batches, by offset."""
        self.is_orderly = True
        """Whether all records have the offsets that their batch counts."""

    def live(self) -> None:
        for _ in range(self.rng.randrange(2, 7)):
            self.produce()
            if self.rng.random() < 0.2:
                self.compact()
        self.log.roll(wall_ms=self.wall_ms)
        append(self.log, encode_batch([Record(b"e", b"end", (), NOW)]), wall_ms=self.wall_ms)
        for _ in range(3):
            self.compact()
            self.wall_ms += self.rng.choice([1, 5000, 90_000_000])
        self.look_up()
        self.check()

    def produce(self) -> None:
        """Append a batch that may be damaged, or dated far away, unless its header is invalid."""
        batch = self._batch()
        verdict = validate(batch, self.topic, TERMS)
        if not isinstance(verdict, ValidBatch):
            self.counts["refused"] += 1
            if self.rng.random() < 0.5 or not _has_valid_header(batch):
                return
            # As a log copied from a Kafka may contain it.
            verdict = ValidBatch(read_header(batch), batch)
        self.counts["accepted"] += 1
        base_offset = self.log.log_end_offset
        self.log.append(verdict.batch, verdict.header, leader_epoch=0, wall_ms=self.wall_ms)
        header = verdict.header._replace(base_offset=base_offset)
        try:
            records = decode_records(verdict.batch, header)
        except DecodeError:
            self.counts["unreadable"] += 1
            return
        offsets = [record.offset for record in records]
        if offsets != list(range(base_offset, header.next_offset)):
            self.counts["disorderly"] += 1
            self.is_orderly = False
        self.written |= {record.offset: record for record in records}

    def _batch(self) -> bytes:
        rng = self.rng
        dated = rng.choice(TIMESTAMPS) if rng.random() < 0.4 else NOW - rng.randrange(1000)
        records = [
            Record(
                rng.choice([None, b"v", b""]),
                rng.choice([b"a", b"b", b"", None if self.topic is PLAIN else b"c"]),
                rng.choice([(), (("h", b"x"),)]),
                dated,
            )
            for _ in range(rng.randrange(1, 4))
        ]
        batch = bytearray(encode_batch(records, codec=rng.choice(CODECS)))
        for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
            self._damage(batch)
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        struct.pack_into(">I", batch, CRC_AT, crc32c(batch[CHECKED_FROM:]))
        return bytes(batch)

    def _damage(self, batch: bytearray) -> None:
        rng = self.rng
        if rng.random() < 0.4:
            at, width = rng.choice(BATCH_FIELDS)
            high = (1 << (8 * struct.calcsize(width) - 1)) - 1
            value = rng.choice((-high - 1, -1, 0, 1, high, high - 1, rng.randint(0, 16)))
            struct.pack_into(f">{width}", batch, at, value)
        else:
            position = rng.randrange(BATCH_HEADER_BYTES, len(batch))
            batch[position] ^= rng.choice((1 << rng.randrange(8), rng.randrange(1, 256)))

    def compact(self) -> None:
        plan = plan_compaction(
            self.log,
            first_dirty_offset=self.first_dirty_offset,
            up_to_offset=self.log.log_end_offset,
            wall_ms=self.wall_ms,
        )
        if plan is None:
            return
        self.counts["compacted"] += 1
        run = Compaction(
            self.log, plan, memory_bytes=self.rng.choice([60, 1 << 16]), wall_ms=self.wall_ms
        )
        try:
            while run.work():
                run.swap(wall_ms=self.wall_ms)
        finally:
            run.close()
        self.first_dirty_offset = run.cleaned_up_to

    def look_up(self) -> None:
        """Search the times of what is left; only an unreadable batch may get in the way."""
        try:
            self.log.max_timestamp()
            self.log.offset_for_timestamp(NOW, up_to_offset=self.log.log_end_offset)
        except CorruptBatchError:
            assert self.counts["unreadable"]

    def check(self) -> None:
        """Compare what is left with what was written."""
        kept: dict[int, Record] = {}
        for batch in read_all(self.log):
            try:
                records = decode_records(batch)
            except DecodeError:
                continue
            kept |= {record.offset: record for record in records}
            self.counts["horizons"] += read_header(batch).has_delete_horizon
        if not self.is_orderly:
            return
        end_offset = self.log.segments[-1].base_offset
        for offset, record in kept.items():
            assert self.written.get(offset, record) == record
        latest = {record.key: offset for offset, record in self.written.items()}
        for key, offset in latest.items():
            is_value = self.written[offset].value is not None
            assert key is None or not is_value or offset in kept or offset >= end_offset, (
                f"{self.written[offset]} is lost"
            )


def _has_valid_header(batch: bytes) -> bool:
    try:
        header, view = only_batch(batch)
        check_envelope(header, view, PLAIN)
        check_header(header)
    except RejectionError:
        return False
    return True


@pytest.fixture
def seed() -> int:
    """FUZZ_SEED repeats a run."""
    return int(os.environ.get("FUZZ_SEED") or time.time_ns() % 1_000_000_007)


def test_whatever_a_topic_accepts_is_compacted(seed: int, long_form: bool) -> None:
    counts: Counter[str] = Counter()
    for number in range(LOGS_LONG if long_form else LOGS_SHORT):
        damaged = DamagedLog(random.Random(f"{seed} {number}"))
        try:
            damaged.live()
        except BaseException as error:
            error.add_note(f"FUZZ_SEED={seed} repeats this, in log {number}")
            raise
        counts.update(damaged.counts)
    print(f"seed {seed}: {dict(counts)}")
    for what in ("refused", "accepted", "unreadable", "compacted", "horizons"):
        assert counts[what] > 0, what
