"""Executes ``kohort consume``: reads records with a consumer and prints them."""

import argparse
import asyncio
import dataclasses
import gc
import signal
import sys
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias

from kohort.admin import offsets
from kohort.admin.cluster import Cluster
from kohort.admin.topics import topic_names
from kohort.cli import patterns
from kohort.cli.errors import UsageError
from kohort.cli.options import client_error, cluster_of, consumer_settings
from kohort.cli.partitions import partitions_of
from kohort.cli.records import Form, parse_format, value_line
from kohort.client.consumer.consumer import Consumer
from kohort.client.core.errors import ConsumerError
from kohort.client.core.partitions import TopicPartition

AnyConsumer: TypeAlias = Consumer[Any, Any]

TERMINATED: Final = 128 + signal.SIGTERM
"""Exit code after SIGTERM, as in shells."""

POLL_MS: Final = 500
RECORDS_AT_ONCE: Final = 20_000
TRACKED_OBJECTS: Final = 1_000_000
OFFSET_MAX: Final = (1 << 63) - 1
NO_ENDS: Final[Mapping[TopicPartition, int]] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int] | None
    """Where to stop in each partition; None to read forever."""


def consume(options: argparse.Namespace) -> None:
    """Print records, for ever or up to an end set by the options. Raises CommandError."""
    form = _form(options)
    if options.max_messages is not None and options.max_messages < 1:
        raise UsageError("--max-messages must be 1 or more")
    is_bounded = options.exit or options.to_offset is not None or options.to_time is not None
    has_start = any(
        value is not None for value in (options.offset, options.from_time, options.last)
    )
    if options.group is not None and (options.partition or is_bounded or has_start):
        raise UsageError("--group starts at committed offsets, and ends only with --max-messages")
    with cluster_of(options) as cluster:
        topics = patterns.matching(options.topics, lambda: topic_names(cluster))
        plan = _plan(cluster, options, topics, is_bounded=is_bounded)
    settings = consumer_settings(options) | {
        "isolation_level": options.isolation_level,
        "max_poll_records": RECORDS_AT_ONCE,
    }
    try:
        with _few_collections():
            if options.group is None:
                reading = _read(options, plan, Consumer(**settings), form)
            else:
                settings |= {
                    "group_id": options.group,
                    "enable_auto_commit": False,
                    "auto_offset_reset": "earliest",
                }
                reading = _share(options, Consumer(*topics, **settings), form)
            asyncio.run(_until_terminated(reading))
    except ConsumerError as error:
        raise client_error(error) from error
    except asyncio.CancelledError:
        sys.exit(TERMINATED)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Make the cyclic garbage collector run rarely.

    Each poll creates and drops thousands of objects; by default, collecting garbage would take half
    of the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(TRACKED_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _until_terminated(reading: Coroutine[Any, Any, None]) -> None:
    """Await `reading`; SIGTERM cancels it like Ctrl-C, so that the consumer leaves its group."""
    task = asyncio.ensure_future(reading)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await task


def _form(options: argparse.Namespace) -> Form:
    """Return how records are printed. Raises UsageError."""
    if not options.json:
        return value_line if options.format is None else parse_format(options.format)
    if options.format is not None:
        raise UsageError("--json and --format cannot be combined")
    from kohort.cli.records import as_line  # noqa: PLC0415 - only with --json.

    return as_line


def _plan(
    cluster: Cluster, options: argparse.Namespace, topics: Sequence[str], *, is_bounded: bool
) -> _Plan:
    partitions = [
        TopicPartition(topic, index)
        for topic in topics
        for index in partitions_of(cluster, topic, options.partition)
    ]
    if options.group is not None:
        return _Plan({}, None)
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
            partition: options.offset if options.offset >= 0 else ends[partition] + options.offset
            for partition in partitions
        }
    elif time_ms is not None:
        starts = _at_time(cluster, time_ms, ends)
    else:
        starts = ends
    starts = {partition: max(offset, firsts[partition]) for partition, offset in starts.items()}
    if not is_bounded:
        return _Plan(starts, None)
    if options.to_offset is not None:
        ends = {partition: min(end, options.to_offset) for partition, end in ends.items()}
    if options.to_time is not None:
        by_time = _at_time(cluster, options.to_time, ends)
        ends = {partition: min(end, by_time[partition]) for partition, end in ends.items()}
    return _Plan(starts, ends)


def _at_time(
    cluster: Cluster, time_ms: int, ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offset of each partition's first record at `time_ms` or later; its end if all
    records are older.
    """
    return {
        partition: offset if offset >= 0 else ends[partition]
        for partition, offset in _offsets(cluster, ends, time_ms).items()
    }


def _offsets(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    time_ms: int,
    *,
    committed_only: bool = False,
) -> dict[TopicPartition, int]:
    times = {(partition.topic, partition.partition): time_ms for partition in partitions}
    results = offsets.checked_offsets(cluster, times, committed_only=committed_only)
    return {TopicPartition(*partition): offset for partition, offset in results.items()}


async def _read(options: argparse.Namespace, plan: _Plan, reader: AnyConsumer, form: Form) -> None:
    left = options.max_messages
    partitions = list(plan.starts)
    if plan.ends is not None:
        partitions = [
            partition for partition in partitions if plan.starts[partition] < plan.ends[partition]
        ]
    if not partitions:
        return
    async with reader as consumer:
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, plan.starts[partition])
        while partitions:
            count = await _print_some(consumer, form, left, plan.ends or NO_ENDS)
            if left is not None:
                left -= count
                if not left:
                    return
            if plan.ends is not None:
                partitions = [
                    partition
                    for partition in partitions
                    if await consumer.position(partition) < plan.ends[partition]
                ]


async def _share(options: argparse.Namespace, reader: AnyConsumer, form: Form) -> None:
    """Read as a member of a group, and commit the offsets of the printed records."""
    left = options.max_messages
    async with reader as consumer:
        while left != 0:
            count = await _print_some(consumer, form, left)
            if not count:
                continue
            if left is not None:
                left -= count
            with suppress(asyncio.TimeoutError):
                await consumer.commit()


async def _print_some(
    reader: AnyConsumer,
    form: Form,
    left: int | None,
    ends: Mapping[TopicPartition, int] = NO_ENDS,
) -> int:
    """Poll once, print up to `left` records (None: any number) below `ends`; return how many."""
    at_most = RECORDS_AT_ONCE if left is None else min(left, RECORDS_AT_ONCE)
    received = await reader.getmany(timeout_ms=POLL_MS, max_records=at_most)
    lines = [
        form(record)
        for partition, records in received.items()
        for record in records
        if record.offset < ends.get(partition, OFFSET_MAX)
    ]
    if lines:
        sys.stdout.buffer.writelines(lines)
        sys.stdout.buffer.flush()
    return len(lines)
