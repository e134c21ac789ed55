"""The work behind ``kohort consume``: a consumer, and what it prints."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import gc
import signal
import sys
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias

from kohort.admin import offsets
from kohort.admin.cluster import Cluster
from kohort.cli.command_config import in_file_words
from kohort.cli.errors import UnavailableError, UsageError
from kohort.cli.not_found import partitions_of
from kohort.cli.options import cluster_of, security_of
from kohort.cli.record_format import Form, parse_format, value_line
from kohort.client.config import OtherSettings
from kohort.client.consumer.consumer import Consumer
from kohort.client.core.errors import ConsumerError
from kohort.client.core.partitions import TopicPartition

AnyConsumer: TypeAlias = Consumer[Any, Any]

TERMINATED: Final = 128 + signal.SIGTERM
"""Exit code, as shells have it."""

POLL_MS: Final = 500
RECORDS_AT_ONCE: Final = 20_000
TRACKED_OBJECTS: Final = 1_000_000
OFFSET_MAX: Final = (1 << 63) - 1
NO_ENDS: Final[Mapping[TopicPartition, int]] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class _Plan:
    """Where to begin in each partition, and where they end now."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


def consume(options: argparse.Namespace) -> None:
    """Print records until that is enough. Raises CommandError."""
    form = _form(options)
    if options.max_messages is not None and options.max_messages < 1:
        raise UsageError("--max-messages: a number from 1")
    if options.group is not None and (options.partition or options.exit):
        raise UsageError("--group shares partitions with its other members: no --partition, --exit")
    with cluster_of(options) as cluster:
        plan = _plan(cluster, options)
    settings: OtherSettings = {
        "bootstrap_servers": options.bootstrap_server,
        "isolation_level": options.isolation_level,
        "max_poll_records": RECORDS_AT_ONCE,
    }
    security = security_of(options)
    given: Any = {
        one.name: getattr(security, one.name) for one in dataclasses.fields(security) if one.init
    }
    settings |= given
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
                reading = _share(options, Consumer(options.topic, **settings), form)
            asyncio.run(_until_told_to_end(reading))
    except ConsumerError as error:
        raise UnavailableError(in_file_words(str(error))) from error
    except asyncio.CancelledError:
        sys.exit(TERMINATED)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Let Python look for cycles seldom: each poll makes and drops thousands of objects at once,
    and a look among them every 700 takes half of the time of reading.
    """
    before = gc.get_threshold()
    gc.set_threshold(TRACKED_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


async def _until_told_to_end(reading: Coroutine[Any, Any, None]) -> None:
    """Await `reading`; SIGTERM cancels it like Ctrl-C, so that the consumer leaves its group."""
    task = asyncio.ensure_future(reading)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await task


def _form(options: argparse.Namespace) -> Form:
    """Return how records are printed. Raises UsageError."""
    if not options.json:
        return value_line if options.format is None else parse_format(options.format)
    if options.format is not None:
        raise UsageError("--json and --format: one of the two")
    from kohort.cli.record_json import as_line  # noqa: PLC0415 - only if wanted.

    return as_line


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
    found = offsets.checked_offsets(cluster, asked, committed_only=committed_only)
    return {TopicPartition(*one): offset for one, offset in found.items()}


async def _read(options: argparse.Namespace, plan: _Plan, reader: AnyConsumer, form: Form) -> None:
    """Read partitions without a group."""
    ends = plan.ends if options.exit else {}
    left = options.max_messages
    open_ends = {one: end for one, end in plan.ends.items() if plan.starts[one] < end}
    wanted = list(open_ends if options.exit else plan.starts)
    if not wanted:
        return
    async with reader as consumer:
        consumer.assign(wanted)
        for one in wanted:
            consumer.seek(one, plan.starts[one])
        while wanted:
            count = await _print_some(consumer, form, left, ends)
            if left is not None:
                left -= count
                if not left:
                    return
            if options.exit:
                wanted = [one for one in wanted if await consumer.position(one) < plan.ends[one]]


async def _share(options: argparse.Namespace, reader: AnyConsumer, form: Form) -> None:
    """Read as a member of a group; what was printed is committed."""
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
    """Wait for records, and print at most `left` of them (None: any number), and none from the
    offsets `ends` on. Returns how many.
    """
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
