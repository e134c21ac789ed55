"""Reading groups back from the log.

Only the last record of a key counts, so keys and values are kept as bytes until the end of the log
and decoded once. A record that cannot be understood is left out and reported: its batch was whole,
so somebody else has written it. A partition that cannot be read to its end is another matter. Its
groups would seem to have no offsets, and their consumers would start over, so they are refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from broker.clock import Clock
from broker.coordinator.offsets_log import OffsetsLog, StoredRecord, partition_of
from broker.coordinator.rehoming import Rehoming, Stray
from broker.core.group.records import DurableRecord, GroupRecord, decode_key, decode_record
from protocol.errors import DecodeError, KafkaError
from protocol.lazy_dataclass import dataclass

logger = logging.getLogger(__name__)

RECORDS_PER_TURN: Final = 2_000
"""Before probes get the loop; when they are decoded, each member of a group counts as one."""

CROWD: Final = 6_000
"""So many members are worth preparing for while they are loaded."""


@dataclass(frozen=True, slots=True)
class LoadedGroups:
    """What the log holds."""

    records_by_group: dict[str, list[DurableRecord]]
    unreadable_partitions: frozenset[int]
    refused_groups: frozenset[str]
    """Those that could not be moved to their partition."""
    load_times_ms: tuple[int, ...]
    """How long each partition took that has records."""


async def load_groups(
    log: OffsetsLog, clock: Clock, on_crowd: Callable[[], object] | None = None
) -> LoadedGroups:
    """All groups, as the last record of each of their keys, each in its own partition: what lies
    elsewhere is moved. `on_crowd` is called when it turns out that they have very many members.
    """
    member_count = 0
    rehoming = Rehoming(log, clock.wall_ms())
    load_times_ms: list[int] = []
    by_group: dict[str, list[DurableRecord]] = {}
    unreadable: set[int] = set()
    for partition in range(log.partition_count):
        latest: dict[bytes, StoredRecord] = {}
        begun_ms, count = clock.monotonic_ms(), 0
        try:
            for count, record in enumerate(log.read(partition), start=1):
                _keep(latest, record)
                if count % RECORDS_PER_TURN == 0:
                    await asyncio.sleep(0)
        except KafkaError as error:
            logger.error(  # noqa: TRY400 - what is wrong is the disk, not this code.
                "Partition %d of the groups' log cannot be read, its groups are unavailable: %s",
                partition,
                error,
            )
            unreadable.add(partition)
            continue
        work = 0
        is_home: dict[str, bool] = {}
        for stored, durable in _decode(latest.values()):
            group_id = durable.group_id
            if group_id not in is_home:
                is_home[group_id] = partition_of(group_id, log.partition_count) == partition
            if is_home[group_id]:
                by_group.setdefault(group_id, []).append(durable)
            else:
                rehoming.add(Stray(partition, stored, durable))
            members = len(durable.members) if isinstance(durable, GroupRecord) else 0
            work += 1 + members
            member_count += members
            if on_crowd is not None and member_count >= CROWD:
                on_crowd()
                on_crowd = None
            if work >= RECORDS_PER_TURN:
                work = 0
                await asyncio.sleep(0)
        if count:
            load_times_ms.append(clock.monotonic_ms() - begun_ms)
    refused: frozenset[str] = frozenset()
    if rehoming.is_needed:
        refused = await rehoming.carry_out(by_group, unreadable)
    return LoadedGroups(by_group, frozenset(unreadable), refused, tuple(load_times_ms))


def read_group(log: OffsetsLog, group_id: str) -> list[DurableRecord]:
    """One group, from a log that may hold many.

    Raises:
        KafkaError: the log cannot be read.
    """
    latest: dict[bytes, StoredRecord] = {}
    for record in log.read(partition_of(group_id, log.partition_count)):
        _keep(latest, record)
    return [durable for _, durable in _decode(latest.values()) if durable.group_id == group_id]


def _keep(latest: dict[bytes, StoredRecord], record: StoredRecord) -> None:
    if record.value is None:
        latest.pop(record.key, None)
    else:
        latest[record.key] = record


def _decode(records: Iterable[StoredRecord]) -> Iterator[tuple[StoredRecord, DurableRecord]]:
    for record in records:
        try:
            key = decode_key(record.key)
            if key is not None:
                yield record, decode_record(key, record.value, record.headers)
        except DecodeError as error:
            logger.warning("Left out a record of the groups' log, key %r: %s", record.key, error)
