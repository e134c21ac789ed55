"""Reads a group's rebalance history from the topic in which a Kohort broker stores it.

The same data as GET /groups/{group}/rebalances, but through the Kafka port that clients can reach
anyway. Only stored records are visible: an ongoing rebalance appears after five seconds.
"""

import json
import time
from typing import Any, Final, TypeAlias

from kohort.admin.cluster import Cluster
from kohort.admin.groups import describe_state
from kohort.admin.offsets import END, START, find_offsets
from kohort.admin.records import read_records
from kohort.protocol.records.record import Record

Json: TypeAlias = dict[str, Any]

TOPIC: Final = "__rebalance_history"
REBALANCE: Final = "rebalance"
AVOIDED: Final = "avoided"

_READ_FIRST: Final = 1_000
"""Number of records to read first, at the end; the number doubles for each read before them."""


def group_history(cluster: Cluster, group_id: str, *, last: int, kind: str | None) -> Json | None:
    """The newest records of a group, oldest first; None if the topic does not exist.

    Args:
        kind: only "rebalance", or only "avoided".

    Raises:
        RefusedError, DisconnectedError, DecodeError
    """
    partition = (TOPIC, 0)
    ends = find_offsets(cluster, {partition: END})
    if partition not in ends:
        return None
    first = find_offsets(cluster, {partition: START})[partition].offset
    key = group_id.encode("utf-8", "surrogatepass")
    entries: dict[int, Json] = {}
    stop, count = ends[partition].offset, _READ_FIRST
    while stop > first and len(entries) < last:
        start = max(first, stop - count)
        older: dict[int, Json] = {}
        for record in read_records(cluster, TOPIC, 0, start, stop):
            if record.key == key and _is_wanted(record, kind):
                entry = json.loads(record.value or b"{}")
                # A long rebalance is stored twice; the second record is complete.
                older[entry["sequence"]] = entry
        entries = older | entries
        stop, count = start, count * 2
    records = [entries[sequence] for sequence in sorted(entries)]
    return {
        "group": group_id,
        "at_ms": int(time.time() * 1000),
        "state": describe_state(cluster, group_id),
        "waiting": None,
        "total_avoided": sum(record.get("kind") == AVOIDED for record in records),
        "rebalances": records[-last:],
    }


def rebalances_since(cluster: Cluster, since_ms: int) -> dict[str, int] | None:
    """The number of rebalances of each group that were stored since a time.

    None if the topic does not exist, or its offsets cannot be read.

    Raises RefusedError, DisconnectedError, DecodeError.
    """
    partition = (TOPIC, 0)
    ends = find_offsets(cluster, {partition: END})
    if partition not in ends or ends[partition].error:
        return None
    start = find_offsets(cluster, {partition: since_ms})[partition].offset
    seen: dict[str, set[bytes | None]] = {}
    if start >= 0:
        for record in read_records(cluster, TOPIC, 0, start, ends[partition].offset):
            if record.key is not None and _is_wanted(record, REBALANCE):
                name = record.key.decode("utf-8", "surrogatepass")
                # A long rebalance is stored twice.
                seen.setdefault(name, set()).add(dict(record.headers).get("sequence"))
    return {name: len(sequences) for name, sequences in seen.items()}


def _is_wanted(record: Record, kind: str | None) -> bool:
    """Whether the header of a record has this kind; None matches all."""
    if kind is None:
        return True
    is_avoided = dict(record.headers).get("kind") == AVOIDED.encode()
    return is_avoided == (kind == AVOIDED)
