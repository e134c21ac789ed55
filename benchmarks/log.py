"""A partition's log by itself: appending, reading, flushing, opening, and memory when idle.

Without sockets and without checking what producers send. Appends go to the page cache, as with
Kafka's default of no fsync; the write-back that follows is the disk's affair.
"""

import gc
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from benchmarks.harness import Bench, Measured, Row
from kohort.broker.config.topic import TopicConfig
from kohort.broker.storage.log.log import PartitionLog
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.record import Record

TITLE: Final = "Log of one partition"

_WALL_MS: Final = 1_700_000_000_000
_BYTES: Final = 200_000_000
_FETCH_BYTES: Final = 1 << 20
_IDLE_LOGS: Final = 2_000
_FLUSHES: Final = 50


def measure(bench: Bench) -> Iterable[Row]:
    figures = bench.measure_ours(lambda: _measure_all(bench.directory / "log"))
    for name, figure in figures.items():
        unit = name.rpartition(", ")[2]
        yield Row(name.removesuffix(f", {unit}"), unit, figure, "more" if "/s" in unit else "less")


def _measure_all(directory: Path) -> Measured:
    measured: dict[str, float] = {}
    for label, size in (("1 MB", 1_000_000), ("16 kB", 16_000), ("1 kB", 1_000)):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        measured |= _measure_batches(directory / "bench-0", label, size)
    measured |= _measure_flush(directory / "flush-0")
    measured |= _measure_idle(directory / "idle")
    shutil.rmtree(directory)
    return measured


def _measure_batches(directory: Path, label: str, size: int) -> Measured:
    batch = _batch(size)
    count = min(_BYTES // len(batch), 50_000)
    log = _open(directory, clean=True)
    append_seconds = _append(log, batch, count)
    read_seconds = _read(log, len(batch) * count)
    log.close()
    log = _open(directory, clean=True)
    first_seconds = _read(log, len(batch) * count)
    log.close()
    start = time.perf_counter()
    log = _open(directory, clean=False)
    recovery_seconds = time.perf_counter() - start
    _check(log.log_end_offset == count, "recovery")
    log.close()
    megabytes = len(batch) * count / 1e6
    return {
        f"append {label} batches, MB/s": megabytes / append_seconds,
        f"append {label} batches, us each": append_seconds / count * 1e6,
        f"read {label} batches, MB/s": megabytes / read_seconds,
        f"read {label} batches, CRC checked, MB/s": megabytes / first_seconds,
        f"recover {label} batches, MB/s": megabytes / recovery_seconds,
    }


def _append(log: PartitionLog, batch: memoryview, count: int) -> float:
    header = read_header(batch)
    start = time.perf_counter()
    for _ in range(count):
        log.append(batch, header, leader_epoch=0, wall_ms=_WALL_MS)
    seconds = time.perf_counter() - start
    _check(log.log_end_offset == count, "append")
    return seconds


def _read(log: PartitionLog, expected_bytes: int) -> float:
    """Read everything, a fetch at a time, as a consumer does that goes by offsets only."""
    offset, total, end_offset = 0, 0, log.log_end_offset
    batch_bytes = expected_bytes // end_offset
    start = time.perf_counter()
    while offset < end_offset:
        data = log.read(offset, _FETCH_BYTES, up_to_offset=end_offset, min_one=True)
        total += len(data)
        offset += len(data) // batch_bytes
    seconds = time.perf_counter() - start
    _check(total == expected_bytes, "read")
    return seconds


def _measure_flush(directory: Path) -> Measured:
    log, batch = _open(directory, clean=True), _batch(1_000)
    header = read_header(batch)
    start = time.perf_counter()
    for _ in range(_FLUSHES):
        log.append(batch, header, leader_epoch=0, wall_ms=_WALL_MS)
        log.flush()
    seconds = time.perf_counter() - start
    _check(log.flushed_offset == _FLUSHES, "flush")
    log.close()
    return {"append 1 kB and flush, us each": seconds / _FLUSHES * 1e6}


def _measure_idle(directory: Path) -> Measured:
    """Logs with content that is not used after a clean start."""
    batch = _batch(1_000)
    for number in range(_IDLE_LOGS):
        log = _open(directory / f"idle-{number}", clean=True)
        log.append(batch, read_header(batch), leader_epoch=0, wall_ms=_WALL_MS)
        if number == 0:
            log.close()
            continue
        # What close would leave, without waiting two thousand times for the disk.
        log.segments[-1].complete_indexes()
        name = f"{1:020d}.snapshot"
        shutil.copy(directory / "idle-0" / name, directory / f"idle-{number}" / name)
    gc.collect()
    before = _resident_bytes()
    start = time.perf_counter()
    logs = [_open(directory / f"idle-{number}", clean=True) for number in range(_IDLE_LOGS)]
    seconds = time.perf_counter() - start
    memory = _resident_bytes() - before
    _check(all(log.log_end_offset == 1 for log in logs), "clean start")
    return {
        "open after a clean stop, us each": seconds / _IDLE_LOGS * 1e6,
        "memory of an idle log, kB": memory / _IDLE_LOGS / 1e3,
    }


def _batch(size: int) -> memoryview:
    records = [Record(os.urandom(size - 61 - 12), timestamp=_WALL_MS)]
    return memoryview(encode_batch(records))


def _open(directory: Path, *, clean: bool) -> PartitionLog:
    return PartitionLog.open(
        directory, TopicConfig(), wall_ms=_WALL_MS, clean_shutdown=clean, leader_epoch_max=0
    )


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _check(is_right: object, what: str) -> None:
    if not is_right:
        raise RuntimeError(f"{what} gave a wrong answer")
