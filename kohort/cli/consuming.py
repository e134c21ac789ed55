"""The work behind ``kohort consume``: a consumer, and what it prints."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

from kohort.cli.errors import UnavailableError, UsageError
from kohort.cli.missing import partitions_of
from kohort.cli.options import cluster_of, security_of
from kohort.cli.record_format import NULL, parse_format
from kohort.cli.record_json import as_line
from kohort.client.consumer import Consumer
from kohort.client.core.errors import ConsumerError
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.records import RawRecord
from kohort.wire import offsets
from kohort.wire.cluster import Cluster

Write: TypeAlias = Callable[[list[RawRecord]], bytes]

TERMINATED: Final = 128 + signal.SIGTERM
"""Exit code, as shells have it."""

POLL_MS: Final = 500
RECORDS_AT_ONCE: Final = 5_000
TRACKED_OBJECTS: Final = 20 * RECORDS_AT_ONCE
PARTITION_FETCH_BYTES: Final = 4 << 20
"""Four times the consumer's default: the wait for the next answer is rarer, and memory is no matter
in a command.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """Where to begin in each partition, and where they end now."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


def consume(options: argparse.Namespace) -> None:
    """Print records until that is enough. Raises CommandError."""
    write = _writer(options)
    if options.max_messages is not None and options.max_messages < 1:
        raise UsageError("--max-messages: a number from 1")
    if options.group is not None and (options.partition or options.exit):
        raise UsageError("--group shares partitions with its other members: no --partition, --exit")
    with cluster_of(options) as cluster:
        plan = _plan(cluster, options)
    settings: dict[str, Any] = {
        "bootstrap_servers": options.bootstrap_server,
        "isolation_level": options.isolation_level,
        "max_poll_records": RECORDS_AT_ONCE,
        "max_partition_fetch_bytes": PARTITION_FETCH_BYTES,
    }
    # Each poll makes and drops thousands of tuples at once. Python would look for cycles among them
    # every 700, which takes half of the time of reading.
    gc.set_threshold(TRACKED_OBJECTS)
    security = security_of(options)
    settings |= {one.name: getattr(security, one.name) for one in dataclasses.fields(security)}
    try:
        if options.group is None:
            asyncio.run(_until_told_to_end(_read(options, plan, settings, write)))
        else:
            asyncio.run(_until_told_to_end(_share(options, settings, write)))
    except ConsumerError as error:
        raise UnavailableError(str(error)) from error
    except asyncio.CancelledError:
        sys.exit(TERMINATED)


async def _until_told_to_end(reading: Coroutine[Any, Any, None]) -> None:
    """Await `reading`; SIGTERM cancels it like Ctrl-C, so that the consumer leaves its group."""
    task = asyncio.ensure_future(reading)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await task


def _writer(options: argparse.Namespace) -> Write:
    """How records become what is printed. Raises UsageError."""
    if options.json:
        if options.format is not None:
            raise UsageError("--json and --format: one of the two")
        return _json_lines
    if options.format is None:
        return _values
    return parse_format(options.format).written


def _values(records: list[RawRecord]) -> bytes:
    values = [NULL if record.value is None else record.value for record in records]
    values.append(b"")
    return b"\n".join(values)


def _json_lines(records: list[RawRecord]) -> bytes:
    lines = [
        as_line(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
        for record in records
    ]
    lines.append(b"")
    return b"\n".join(lines)


def _plan(cluster: Cluster, options: argparse.Namespace) -> _Plan:
    """Raises CommandError, DisconnectedError."""
    wanted = partitions_of(cluster, options.topic, options.partition)
    if options.group is not None:
        return _Plan({}, {})
    partitions = [TopicPartition(options.topic, index) for index in wanted]
    firsts = _offsets(cluster, partitions, offsets.START)
    ends = _offsets(
        cluster, partitions, offsets.END, committed_only=options.isolation_level == "read_committed"
    )
    time_ms = options.from_time
    if options.last is not None:
        time_ms = int(time.time() * 1000) - options.last
    if options.from_beginning:
        starts = firsts
    elif options.offset is not None:
        starts = {
            one: options.offset if options.offset >= 0 else ends[one] + options.offset
            for one in partitions
        }
    elif time_ms is not None:
        found = _offsets(cluster, partitions, time_ms)
        starts = {one: found[one] if found[one] >= 0 else ends[one] for one in partitions}
    else:
        starts = ends
    return _Plan({one: max(starts[one], firsts[one]) for one in partitions}, ends)


def _offsets(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    time_ms: int,
    *,
    committed_only: bool = False,
) -> dict[TopicPartition, int]:
    asked = {(one.topic, one.partition): time_ms for one in partitions}
    found = offsets.told_offsets(cluster, asked, committed_only=committed_only)
    return {TopicPartition(*one): offset for one, offset in found.items()}


async def _read(
    options: argparse.Namespace, plan: _Plan, settings: dict[str, Any], write: Write
) -> None:
    """Read partitions without a group."""
    left = options.max_messages
    open_ends = {one: end for one, end in plan.ends.items() if plan.starts[one] < end}
    wanted = list(open_ends if options.exit else plan.starts)
    if not wanted:
        return
    async with Consumer(**settings) as consumer:
        consumer.assign(wanted)
        for one in wanted:
            consumer.seek(one, plan.starts[one])
        while wanted:
            got = await consumer.getmany(timeout_ms=POLL_MS)
            records: list[RawRecord] = []
            for one, of_partition in got.items():
                end = plan.ends[one]
                if options.exit and of_partition and of_partition[-1].offset >= end:
                    of_partition = [record for record in of_partition if record.offset < end]  # noqa: PLW2901
                records += of_partition
            if left is not None:
                records = records[:left]
                left -= len(records)
            _print(write(records))
            if left == 0:
                return
            if options.exit:
                wanted = [one for one in wanted if await consumer.position(one) < plan.ends[one]]


async def _share(options: argparse.Namespace, settings: dict[str, Any], write: Write) -> None:
    """Read as a member of a group; what was printed is committed."""
    left = options.max_messages
    async with Consumer(
        options.topic,
        group_id=options.group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        **settings,
    ) as consumer:
        while left is None or left > 0:
            count = RECORDS_AT_ONCE if left is None else min(left, RECORDS_AT_ONCE)
            got = await consumer.getmany(timeout_ms=POLL_MS, max_records=count)
            records = [record for of_partition in got.values() for record in of_partition]
            if not records:
                continue
            _print(write(records))
            if left is not None:
                left -= len(records)
            with suppress(asyncio.TimeoutError):
                await consumer.commit()


def _print(data: bytes) -> None:
    if data:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
