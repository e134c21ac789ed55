"""Compaction of a log with and without transactions, and how long it holds up the loop meanwhile.

A hundred thousand keys, written over and over: of most batches some records are left. In the
transactional log each batch is a transaction with its marker, and every tenth is aborted. The
compactor works in the executor, as in a broker that serves; what is noted is how late a timer of
five milliseconds is on the loop beside it, which shares the interpreter with it. On a busy machine
most of that is time in which others had the processor; so it is also noted how much of it at most
this process has used itself.
"""

import asyncio
import itertools
import random
import shutil
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness import Bench, Measured, Row, progress
from benchmarks.in_process import broker_here, run_apart
from kohort.broker.app import Broker
from kohort.broker.topics.partition import Partition
from kohort.protocol.records.batch import read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType
from kohort.protocol.records.record import Record

TITLE: Final = "Compaction, and the loop meanwhile"

_MEGABYTES: Final = 100
_VALUE_BYTES: Final = 200
_BATCH_RECORDS: Final = 100
_KEYS: Final = 100_000
_ABORT_EVERY: Final = 10
_TICK_S: Final = 0.005
_KINDS: Final = {"plain": False, "transactional": True}
_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "segment.bytes": str(16 << 20),
}


def measure(bench: Bench) -> Iterable[Row]:
    work = partial(_measure_all, megabytes=bench.scaled(_MEGABYTES, 0.2))

    def measure_once() -> Measured:
        directory = bench.directory / "compaction"
        shutil.rmtree(directory, ignore_errors=True)
        return run_apart(work, directory)

    figures = bench.measure_ours(measure_once)
    for kind in _KINDS:
        yield Row(f"{kind} log", "MB/s", figures[f"{kind} rate"], "more")
        yield Row(f"{kind} log: lateness of the loop, p50", "ms", figures[f"{kind} p50"])
        yield Row(f"{kind} log: lateness of the loop, p99", "ms", figures[f"{kind} p99"])
        used = figures[f"{kind} used p99"]
        yield Row(f"{kind} log: the same in processor time, p99", "ms", used, limit=10)
    yield Row("transactional of plain", "x", figures["share"], "more", limit=0.8)


async def _measure_all(directory: Path, *, megabytes: float) -> Measured:
    measured: dict[str, float] = {}
    async with broker_here(directory, 3_000, "log.cleaner.enable=false") as broker:
        for kind, is_transactional in _KINDS.items():
            progress(f"  {kind}")
            topic = await broker.services.topics.changes.create_topic(
                kind, partition_count=1, configs=_CONFIGS
            )
            partition = topic.partitions[0]
            size = _fill(partition, megabytes, is_transactional=is_transactional)
            await partition.force()
            measured |= {f"{kind} {name}": value for name, value in await _compact(broker, size)}
            _check(partition)
    return {**measured, "share": measured["transactional rate"] / measured["plain rate"]}


def _fill(partition: Partition, megabytes: float, *, is_transactional: bool) -> float:
    """Append that much, all of it sealed; how much it is."""
    chance = random.Random(1)
    value = chance.randbytes(_VALUE_BYTES)
    wall_ms = int(time.time() * 1e3)
    for number in itertools.count():
        records = [
            Record(value, b"key %d" % chance.randrange(_KEYS), timestamp=wall_ms)
            for _ in range(_BATCH_RECORDS)
        ]
        batch = encode_batch(
            records,
            producer_id=1,
            producer_epoch=0,
            base_sequence=number * _BATCH_RECORDS,
            is_transactional=is_transactional,
        )
        partition.append(batch, read_header(batch), wall_ms=wall_ms)
        if is_transactional:
            is_abort = number % _ABORT_EVERY == 0
            partition.append_marker(
                1,
                0,
                ControlType.ABORT if is_abort else ControlType.COMMIT,
                coordinator_epoch=0,
                transaction_version=1,
                wall_ms=wall_ms,
            )
        if partition.log.size_bytes >= megabytes * 1e6:
            break
    partition.log.roll(wall_ms=wall_ms)
    return partition.log.size_bytes / 1e6


async def _compact(broker: Broker, megabytes: float) -> Iterable[tuple[str, float]]:
    lateness: list[float] = []
    used: list[float] = []
    watch = asyncio.create_task(_watch(lateness, used))
    began_s = time.perf_counter()
    if not await broker.services.topics.compaction.compact_one():
        raise RuntimeError("there was nothing to compact")
    took_s = time.perf_counter() - began_s
    watch.cancel()
    await asyncio.wait([watch])
    return {
        "rate": megabytes / took_s,
        "p50": _percentile_ms(lateness, 50),
        "p99": _percentile_ms(lateness, 99),
        "used p99": _percentile_ms(used, 99),
    }.items()


async def _watch(lateness: list[float], used: list[float]) -> None:
    while True:
        due_s, used_before_s = time.monotonic() + _TICK_S, time.process_time()
        await asyncio.sleep(_TICK_S)
        late_s = max(0.0, time.monotonic() - due_s)
        lateness.append(late_s)
        # What was used before it was due is in it, so that this is too much rather than too little.
        used.append(min(late_s, time.process_time() - used_before_s))


def _percentile_ms(seconds: list[float], percent: int) -> float:
    ordered = sorted(seconds)
    return ordered[len(ordered) * percent // 100] * 1e3 if ordered else 0.0


def _check(partition: Partition) -> None:
    """Most of what was written was written over."""
    if partition.log.log_end_offset > 4 * _KEYS and partition.log.size_bytes > 0:
        written = partition.log.log_end_offset * _VALUE_BYTES
        if partition.log.size_bytes > written * 0.9:
            raise RuntimeError(f"{partition!r} has not become smaller")
