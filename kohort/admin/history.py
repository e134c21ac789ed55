"""The rebalance history of a group, read from the topic that a Kohort broker keeps it in.

What GET /groups/{group}/rebalances tells over HTTP, over the one port that clients reach anyway. It
has what is stored: a rebalance that runs is there when it has lasted for five seconds.
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
"""Records that are read first, from the end; then twice as many before them, and so on."""


def group_history(cluster: Cluster, group_id: str, *, last: int, kind: str | None) -> Json | None:
    """The newest records of a group, oldest first; None where there is no such topic.

    Args:
        kind: only "rebalance", or only "avoided".

    Raises:
        RefusedError, DisconnectedError, DecodeError: it cannot be read.
    """
    partition = (TOPIC, 0)
    ends = find_offsets(cluster, {partition: END})
    if partition not in ends:
        return None
    first = find_offsets(cluster, {partition: START})[partition].offset
    key = group_id.encode("utf-8", "surrogatepass")
    found: dict[int, Json] = {}
    stop, count = ends[partition].offset, _READ_FIRST
    while stop > first and len(found) < last:
        start = max(first, stop - count)
        older: dict[int, Json] = {}
        for record in read_records(cluster, TOPIC, 0, start, stop):
            if record.key == key and _is_wanted(record, kind):
                told = json.loads(record.value or b"{}")
                # A rebalance that ran for long is there twice; what is stored later is complete.
                older[told["sequence"]] = told
        found = older | found
        stop, count = start, count * 2
    records = [found[sequence] for sequence in sorted(found)]
    return {
        "group": group_id,
        "at_ms": int(time.time() * 1000),
        "state": describe_state(cluster, group_id),
        "waiting": None,
        "total_avoided": sum(one.get("kind") == AVOIDED for one in records),
        "rebalances": records[-last:],
    }


def rebalances_since(cluster: Cluster, since_ms: int) -> dict[str, int] | None:
    """How many rebalances of each group were stored since a moment.

    None where there is no topic, or it may not be read.

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
                # One that ran for long is there twice.
                seen.setdefault(name, set()).add(dict(record.headers).get("sequence"))
    return {name: len(sequences) for name, sequences in seen.items()}


def _is_wanted(record: Record, kind: str | None) -> bool:
    """Whether a record is of a kind, as its header says."""
    if kind is None:
        return True
    told = dict(record.headers).get("kind")
    return (told == AVOIDED.encode()) == (kind == AVOIDED)
