"""Reads a group's rebalance history from the topic in which a Kohort broker, or `kohort watch`,
stores it.

The same data as GET /groups/{group}/rebalances, but through the Kafka port that clients can reach
anyway. Only stored records are visible: an ongoing rebalance appears after five seconds.
"""

import json
import time
from collections.abc import Iterator
from operator import itemgetter
from typing import Any, Final, TypeAlias

from kohort.admin.cluster import Cluster, check
from kohort.admin.groups import describe_state
from kohort.admin.offsets import END, START, find_offsets
from kohort.groups.history.entry import observed_key
from kohort.protocol.errors import DecodeError, ErrorCode
from kohort.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kohort.protocol.records.batch import BatchHeader, crc_matches, split_batches
from kohort.protocol.records.record import Record, decode_records

ANSWER_BYTES: Final = 8 << 20
"""Maximum size of a response, unless a single batch is larger."""

_FETCH_MAX: Final = 12
"""Last version with topic names; later ones have topic ids."""
_MAX_WAIT_MS: Final = 500


def read_records(
    cluster: Cluster, topic: str, partition: int, start: int, stop: int
) -> Iterator[Record]:
    """The records from offset `start` to `stop` (exclusive). Raises like `read_batches`."""
    for header, batch in read_batches(cluster, topic, partition, start, stop):
        for record in () if header.is_control else decode_records(batch, header):
            if start <= record.offset < stop:
                yield record


def read_batches(
    cluster: Cluster, topic: str, partition: int, start: int, stop: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches with records from offset `start` to `stop` (exclusive), in order.

    Raises:
        RefusedError: the partition cannot be read.
        DecodeError: a batch is damaged.
    """
    leader = cluster.leader(topic, partition)
    while leader is not None and start < stop:
        request = FetchRequest(
            max_wait_ms=_MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=ANSWER_BYTES,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=partition,
                            fetch_offset=start,
                            partition_max_bytes=ANSWER_BYTES,
                        )
                    ],
                )
            ],
        )
        answer: FetchResponse = cluster.ask(leader, request, at_most=_FETCH_MAX)
        data = answer.responses[0].partitions[0]
        check(data.error_code, f"{topic}-{partition} cannot be read")
        before = start
        for header, batch in split_batches(data.records or b"", partial_tail=True):
            if not crc_matches(batch, header):
                raise DecodeError(f"{topic}-{partition}: the batch at {start} is damaged")
            if start < stop:
                yield header, batch
            start = max(start, header.next_offset)
        if start == before:
            return  # The remaining records were deleted meanwhile.


Json: TypeAlias = dict[str, Any]

TOPIC: Final = "__rebalance_history"
REBALANCE: Final = "rebalance"
AVOIDED: Final = "avoided"

_READ_FIRST: Final = 1_000
"""Records in the first read, at the topic's end. Each further read goes back from there, over
twice as many records as the previous one."""

_READ_FAR: Final = 50_000
"""Number of read records after which `group_history` stops if it has `enough` rebalances."""


def group_history(
    cluster: Cluster, group_id: str, *, last: int, kind: str | None, enough: int | None = None
) -> Json | None:
    """The newest records of a group, oldest first; None if the topic does not exist.

    Args:
        kind: only "rebalance", or only "avoided"; None for both.
        enough: if this many rebalances are found, stop after _READ_FAR records of the topic, even
            with fewer than `last` records of the group; None to never stop early.

    Raises:
        RefusedError, DisconnectedError, DecodeError
    """
    partition = (TOPIC, 0)
    ends = find_offsets(cluster, {partition: END})
    if partition not in ends:
        code = cluster.metadata([TOPIC]).topics[0].error_code
        if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            check(code, "the rebalance history cannot be read")
        return None
    first = find_offsets(cluster, {partition: START})[partition].offset
    key = group_id.encode("utf-8", "surrogatepass")
    entries: dict[object, Json] = {}
    stop, count = ends[partition].offset, _READ_FIRST
    while stop > first and len(entries) < last:
        if enough is not None and ends[partition].offset - stop >= _READ_FAR:
            rebalances = sum(entry.get("kind") == REBALANCE for entry in entries.values())
            if rebalances >= enough:
                break
        start = max(first, stop - count)
        older: dict[object, Json] = {}
        for record in read_records(cluster, TOPIC, 0, start, stop):
            if record.key == key and _is_wanted(record, kind):
                entry = json.loads(record.value or b"{}")
                # A long rebalance is stored twice; the second record is complete. Watchers may
                # repeat a record.
                entry["stored_at_ms"] = record.timestamp
                older[observed_key(entry) or entry["sequence"]] = entry
        entries = older | entries
        stop, count = start, count * 2
    records = sorted(entries.values(), key=itemgetter("sequence"))
    return {
        "group": group_id,
        "at_ms": int(time.time() * 1000),
        "state": describe_state(cluster, group_id),
        "waiting": None,
        "stored_at_ms": max((record["stored_at_ms"] for record in records), default=None),
        "total_avoided": sum(record.get("kind") == AVOIDED for record in records),
        "rebalances": records[-last:],
    }


def rebalances_since(cluster: Cluster, since_ms: int) -> dict[str, int] | None:
    """The number of rebalances of each group that were stored since a time.

    None if the topic does not exist, or its offsets cannot be read.

    Raises DecodeError.
    """
    partition = (TOPIC, 0)
    ends = find_offsets(cluster, {partition: END})
    if partition not in ends or ends[partition].error:
        return None
    start = find_offsets(cluster, {partition: since_ms})[partition].offset
    seen: dict[str, set[bytes | None]] = {}
    if start >= 0:
        for record in read_records(cluster, TOPIC, 0, start, ends[partition].offset):
            # Compare timestamps, because a watcher may store an old record after newer ones.
            is_new = record.timestamp >= since_ms
            if is_new and record.key is not None and _is_wanted(record, REBALANCE):
                name = record.key.decode("utf-8", "surrogatepass")
                # A long rebalance is stored twice, and watchers may repeat a record.
                seen.setdefault(name, set()).add(dict(record.headers).get("sequence"))
    return {name: len(sequences) for name, sequences in seen.items()}


def _is_wanted(record: Record, kind: str | None) -> bool:
    """Whether a record is of this kind, according to its header; None matches all."""
    if kind is None:
        return True
    is_avoided = dict(record.headers).get("kind") == AVOIDED.encode()
    return is_avoided == (kind == AVOIDED)
