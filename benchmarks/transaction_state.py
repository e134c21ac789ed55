"""What very many transactions cost a broker that has them: in a partition, in an index, at a start.

Without sockets. A partition is its log; the transactional ids are loaded from a log in memory, so
that a start is what the coordinator does, and not the disk.
"""

import asyncio
import gc
import os
import shutil
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.harness import Bench, Measured, Row
from kohort.broker.config.topic import TopicConfig
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.broker.core.partition.transactions import AbortedTransaction
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.core.transaction.records import NEVER_MS, TransactionRecord
from kohort.broker.core.transaction.requests import NO_PRODUCER_ID, ClientVersion, TopicPartition
from kohort.broker.core.transaction.states import TransactionState
from kohort.broker.runtime.clock import SystemClock
from kohort.broker.runtime.memory.collector import nothing_collected
from kohort.broker.storage.filesystem import OsFileSystem
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.segment.transaction_index import TransactionIndex, encode_entries
from kohort.broker.transactions.host import TransactionHost, TransactionsConfig
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import BatchHeader, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType, EndTransactionMarker, encode_marker
from kohort.protocol.records.record import Record
from kohort.testing.memory_transaction_log import MemoryTransactionLog

TITLE: Final = "Very many transactions"

_WALL_MS: Final = 1_700_000_000_000
_OPEN: Final = 10_000
_ENTRIES: Final = 1_000_000
_IDS: Final = 100_000
_APPENDS: Final = 3_000
_FETCH_BYTES: Final = 1 << 20

_LIMITS: Final = {
    "start with 100,000 ids, 10,000 open, 1,000 to complete, s": 2.0,
    "memory of an idle id, kB": 1.0,
    "memory of an open transaction, kB": 4.0,
}

Batch = tuple[bytes, BatchHeader]


def measure(bench: Bench) -> Iterable[Row]:
    figures = bench.measure_ours(lambda: _measure_all(bench))
    for name, figure in figures.items():
        unit = name.rpartition(", ")[2]
        yield Row(name.removesuffix(f", {unit}"), unit, figure, limit=_LIMITS.get(name))


def _measure_all(bench: Bench) -> Measured:
    directory = bench.directory / "transaction-state"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    try:
        return {
            **_measure_partition(
                directory / "bench-0", int(bench.scaled(_OPEN)), int(bench.scaled(_APPENDS, 10))
            ),
            **_measure_index(directory, int(bench.scaled(_ENTRIES))),
            **asyncio.run(_measure_start(int(bench.scaled(_IDS, 100)))),
        }
    finally:
        shutil.rmtree(directory)


# One partition.


def _measure_partition(directory: Path, open_count: int, count: int) -> Measured:
    """`count` batches and markers are timed."""
    log = PartitionLog.open(
        directory, TopicConfig(), wall_ms=_WALL_MS, clean_shutdown=True, leader_epoch_max=0
    )
    alone = _append_us(log, 1, count)
    crowd = range(1_000_000, 1_000_000 + open_count)
    _append(log, [_batch(producer_id) for producer_id in crowd])
    _check(len(log.producers.spans.open) == open_count, "open transactions")
    beside = _append_us(log, 100_000, count)
    begin = log.log_end_offset
    nothing_aborted = _fetch_ms(log, 0, expected=0)
    _append(log, [_marker(producer_id, ControlType.ABORT) for producer_id in crowd])
    _append_us(log, 200_000, count)
    after = _fetch_ms(log, begin + open_count, expected=0)
    overlapping = _fetch_ms(log, 2 * count + open_count, expected=open_count)
    longest_step = min(_longest_step_ms(log, 2 * count + open_count) for _ in range(5))
    log.close()
    return {
        "transactional append, us": alone[0],
        "transactional append beside 10,000 open, us": beside[0],
        "marker, us": alone[1],
        "marker beside 10,000 open, us": beside[1],
        "committed fetch, nothing aborted, ms": nothing_aborted,
        "committed fetch behind 10,000 aborted, ms": after,
        "committed fetch of 10,000 aborted at once, ms": overlapping,
        "longest step of the search for these, ms": longest_step,
    }


def _append_us(log: PartitionLog, first_producer_id: int, count: int) -> tuple[float, float]:
    """Microseconds for a batch, and for a marker."""
    producer_ids = range(first_producer_id, first_producer_id + count)
    batches = _append(log, [_batch(one) for one in producer_ids])
    markers = _append(log, [_marker(one, ControlType.COMMIT) for one in producer_ids])
    return batches / count * 1e6, markers / count * 1e6


def _append(log: PartitionLog, batches: Sequence[Batch]) -> float:
    start = time.perf_counter()
    for batch, header in batches:
        log.append(batch, header, leader_epoch=0, wall_ms=_WALL_MS)
    seconds = time.perf_counter() - start
    log.producers.spans.settle(log.log_end_offset)
    return seconds


def _fetch_ms(log: PartitionLog, offset: int, *, expected: int) -> float:
    """The second time, when its batches have been verified."""
    end = log.log_end_offset
    log.read(offset, _FETCH_BYTES, up_to_offset=end, min_one=True)
    start = time.perf_counter()
    data = log.read(offset, _FETCH_BYTES, up_to_offset=end, min_one=True)
    aborted = log.aborted.in_read(offset, len(data), up_to_offset=end).at_once()
    seconds = time.perf_counter() - start
    _check(len(aborted) == expected, f"{len(aborted)} aborted transactions, not {expected}:")
    return seconds * 1e3


def _longest_step_ms(log: PartitionLog, offset: int) -> float:
    """What such a fetch holds the loop for, between the turns that others have."""
    end = log.log_end_offset
    data = log.read(offset, _FETCH_BYTES, up_to_offset=end, min_one=True)
    steps = log.aborted.in_read(offset, len(data), up_to_offset=end).steps()
    longest = 0.0
    while True:
        start = time.perf_counter()
        ended = next(steps, True)
        longest = max(longest, time.perf_counter() - start)
        if ended:
            return longest * 1e3


def _batch(producer_id: int) -> Batch:
    batch = encode_batch(
        [Record(b"v" * 20, timestamp=_WALL_MS)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    return batch, read_header(batch)


def _marker(producer_id: int, result: ControlType) -> Batch:
    batch = encode_marker(
        EndTransactionMarker(result, 0),
        producer_id=producer_id,
        producer_epoch=0,
        timestamp=_WALL_MS,
    )
    return batch, read_header(batch)


# One index.


def _measure_index(directory: Path, count: int) -> Measured:
    path = directory / f"{0:020d}.txnindex"
    path.write_bytes(
        encode_entries(
            [
                AbortedTransaction(number % 50, 2 * number, 2 * number + 1, 2 * number + 2)
                for number in range(count)
            ]
        )
    )
    index = TransactionIndex(OsFileSystem(), str(path), 0, path.stat().st_size)
    start = time.perf_counter()
    _check(index.check_aside(), "the check")
    checked = time.perf_counter() - start
    offsets = [2 * count * part // 100 for part in range(100)]
    start = time.perf_counter()
    for offset in offsets:
        _check(len(index.overlapping(offset, offset + 2).transactions) == 1, "a search")
    searched = time.perf_counter() - start
    index.close()
    return {
        "search of 1,000,000 aborted, ms": searched / len(offsets) * 1e3,
        "first check of these, on another thread, ms": checked * 1e3,
    }


# One start.


async def _measure_start(id_count: int) -> Measured:
    open_count, decided_count = id_count // 10, id_count // 100
    idle_count = id_count - open_count - decided_count
    states = [
        *[TransactionState.COMPLETE_COMMIT] * idle_count,
        *[TransactionState.ONGOING] * open_count,
        *[TransactionState.PREPARE_COMMIT] * decided_count,
    ]
    seconds, _ = await _started([_record(*one) for one in enumerate(states)], decided_count)
    idle = [_record(number, TransactionState.COMPLETE_COMMIT) for number in range(id_count)]
    _, idle_bytes = await _started(idle, 0)
    opened = [_record(number, TransactionState.ONGOING) for number in range(id_count)]
    _, open_bytes = await _started(opened, 0)
    return {
        "start with 100,000 ids, 10,000 open, 1,000 to complete, s": seconds,
        "memory of an idle id, kB": idle_bytes / id_count / 1e3,
        "memory of an open transaction, kB": open_bytes / id_count / 1e3,
    }


async def _started(records: list[TransactionRecord], decided_count: int) -> tuple[float, int]:
    """Seconds of a start, and bytes that it leaves."""
    log = MemoryTransactionLog(50)
    for record in records:
        log.append(partition_of(record.transactional_id, 50), record, wall_ms=_WALL_MS)
    records.clear()
    markers = _Markers()
    host = TransactionHost(
        TransactionsConfig(),
        log=log,
        markers=markers,
        purgatory=Purgatory(report=_report),
        clock=SystemClock(),
        new_producer_id=lambda: 0,
    )
    gc.collect()
    before = _resident_bytes()
    start = time.perf_counter()
    with nothing_collected():
        await host.start()
    seconds = time.perf_counter() - start
    gc.collect()
    after = _resident_bytes()
    _check(markers.count == 2 * decided_count, "a start")
    await host.close()
    return seconds, after - before


def _record(number: int, state: TransactionState) -> TransactionRecord:
    now = SystemClock().wall_ms()
    is_open = not state.is_idle
    places = (
        TopicPartition("orders", number % 12),
        TopicPartition("__consumer_offsets", number % 50),
    )
    return TransactionRecord(
        f"service-{number:06}",
        1_000 + number,
        1_000 + number,
        NO_PRODUCER_ID,
        3,
        600_000,
        state,
        places if is_open else (),
        now,
        now if is_open else NEVER_MS,
        ClientVersion.V2,
    )


class _Markers:
    """Partitions that take every marker."""

    count = 0

    def may_wait(self, *_: object) -> bool:
        return False

    def write(self, *_: object, **__: object) -> ErrorCode:
        self.count += 1
        return ErrorCode.NONE


def _report(doing: str, error: Exception) -> None:
    raise RuntimeError(doing) from error


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _check(is_right: object, what: str) -> None:
    if not is_right:
        raise RuntimeError(f"{what} gave a wrong answer")
