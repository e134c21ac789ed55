"""What ``kohort watch`` needs for each commit: time, and memory for each partition.

It reads batches as Fetch returns them, of 1,000 groups with ten members and 100 partitions each.
"""

import os
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness import Bench, Measured, Row
from benchmarks.in_process import run_apart
from benchmarks.processes import resident_mib
from kohort.groups.encoding import encode_as_batch
from kohort.groups.records import DurableRecord, GroupRecord, OffsetRecord, StoredMember
from kohort.groups.requests import CommittedOffset
from kohort.protocol.codec import encode_versioned
from kohort.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from kohort.protocol.records.batch import PLACEMENT_BYTES, placement_prefix
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.partition import OffsetsPartition
from kohort.watch.core.watcher import Watcher

TITLE: Final = "Following groups, 1,000 groups with 100 partitions each"

_GROUPS: Final = 1_000
_MEMBERS: Final = 10
_PARTITIONS: Final = 100
_TOPIC: Final = "payments.orders.v1"
_TOPIC_ID: Final = bytes(range(16))
_SIZES: Final = (1, 10)
"""Commits in a batch: a consumer commits all of its partitions in one."""
_START_MS: Final = 1_700_000_000_000


def measure(bench: Bench) -> Iterable[Row]:
    figures = bench.measure_ours(partial(run_apart, _measure, bench.directory / "watch"))
    yield Row("memory", "MiB", figures["memory"], limit=100)
    for size in _SIZES:
        yield Row(f"CPU of a commit, {size} in a batch", "us", figures[f"{size}"], limit=15)
        yield Row("the same, 1 GB of batches: CPU", "s", figures[f"{size} GB"], limit=30)


async def _measure(directory: Path) -> Measured:
    del directory
    before_mib = resident_mib(os.getpid())
    partition = OffsetsPartition(Watcher({}, lambda _: Timeouts()), 0)
    for number in range(_GROUPS):
        _read(partition, [[_generation(_name(number))]], _START_MS)
        for seconds in (1, 2):
            _read(partition, _commits(_name(number), 10), _START_MS + 1_000 * seconds)
    measured = {"memory": resident_mib(os.getpid()) - before_mib}
    for seconds, size in enumerate(_SIZES, 3):
        used_s, size_bytes = 0.0, 0
        for number in range(_GROUPS):
            batches = _commits(_name(number), size)
            one_s, one_bytes = _read(partition, batches, _START_MS + 1_000 * seconds)
            used_s += one_s
            size_bytes += one_bytes
        measured[f"{size}"] = used_s * 1e6 / (_GROUPS * _PARTITIONS)
        measured[f"{size} GB"] = used_s * 1e9 / size_bytes
    return measured


def _read(
    partition: OffsetsPartition, batches: Iterable[list[DurableRecord]], at_ms: int
) -> tuple[float, int]:
    """Read batches; return the seconds of CPU, and their size."""
    offset = partition.next_offset
    data = bytearray()
    for records in batches:
        batch, header = encode_as_batch(records, at_ms)
        data += placement_prefix(offset, header.length, 0) + batch[PLACEMENT_BYTES:]
        offset += len(records)
    fetched = bytes(data)
    begin_s = time.process_time()
    for _ in partition.take(fetched, offset):
        pass
    used_s = time.process_time() - begin_s
    if partition.next_offset != offset:
        raise RuntimeError("a batch was not read")
    return used_s, len(fetched)


def _name(number: int) -> str:
    return f"billing-service-{number}"


def _generation(group: str) -> GroupRecord:
    members = []
    for number in range(_MEMBERS):
        owned = TopicPartition(topic=_TOPIC, partitions=list(range(number, _PARTITIONS, _MEMBERS)))
        assignment = ConsumerProtocolAssignment(assigned_partitions=[owned])
        encoded = encode_versioned(assignment, 0)
        members.append(
            StoredMember(f"m{number}", None, "c", "/h", 45_000, 300_000, b"\0\0" * 5, encoded)
        )
    return GroupRecord(group, "consumer", 1, "range", "m0", _START_MS, tuple(members))


def _commits(group: str, size: int) -> Iterator[list[DurableRecord]]:
    for first in range(0, _PARTITIONS, size):
        committed = CommittedOffset(123_456, 0, "", _START_MS, -1, _TOPIC_ID)
        yield [
            OffsetRecord(group, _TOPIC, index, committed) for index in range(first, first + size)
        ]
