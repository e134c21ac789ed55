"""An overview of all groups of a cluster, read with few requests, each for many groups."""

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeVar

from kohort.admin.cluster import Cluster
from kohort.admin.groups import (
    CONSUMER,
    GROUPS_SINCE,
    OFFSET_FETCH_MAX,
    SHARE,
    committed_offsets,
    groups_of,
    offsets_in,
    start_offsets,
)
from kohort.admin.history import rebalances_since
from kohort.admin.offsets import END, TopicPartition, known_offsets, starts_of_lagging
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.versions import UnsupportedVersionError
from kohort.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.protocol.messages.groups import DescribeGroupsRequest, ListedGroup
from kohort.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from kohort.protocol.messages.share_group_describe import ShareGroupDescribeRequest

T = TypeVar("T")

AT_ONCE: Final = 100
PARTITIONS_AT_ONCE: Final = 5_000
RECENT_S: Final = 3_600


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group; fields are None if the value is unknown."""

    listed: ListedGroup
    members: int | None
    lag: int | None
    """Number of unread records; None if the group has no offsets."""
    rebalances: int | None
    """Rebalances in the last `RECENT_S`; None if the broker stores no history."""


def overview(cluster: Cluster) -> list[GroupRow]:
    """All groups by name. Raises DecodeError."""
    listed: dict[str, ListedGroup] = {}
    members: dict[str, int] = {}
    offsets: dict[str, dict[TopicPartition, int]] = {}
    lags: dict[str, int | None] = {}
    for broker in cluster.brokers():
        groups = groups_of(cluster, broker)
        listed |= {group.group_id: group for group in groups}
        for batch in _batches([group.group_id for group in groups]):
            members |= _members(cluster, broker, DescribeGroupsRequest(groups=batch))
            offsets |= _offsets(cluster, broker, batch)
        consumers = [group.group_id for group in groups if group.group_type.lower() == CONSUMER]
        for batch in _batches(consumers):
            members |= _members(cluster, broker, ConsumerGroupDescribeRequest(group_ids=batch))
        shares = [group.group_id for group in groups if group.group_type.lower() == SHARE]
        # Kafka 4.0 supports only an early-access version of these requests, which Kohort does not.
        with suppress(UnsupportedVersionError):
            for batch in _batches(shares):
                members |= _members(cluster, broker, ShareGroupDescribeRequest(group_ids=batch))
                lags |= _share_lags(cluster, broker, batch)
    ends = _ends(cluster, {partition for committed in offsets.values() for partition in committed})
    starts = _starts(cluster, offsets.values(), ends)
    for name, committed in offsets.items():
        lags.setdefault(name, _lag(committed, starts, ends))
    since_ms = int(time.time() * 1000) - RECENT_S * 1000
    rebalances = rebalances_since(cluster, since_ms)
    return [
        GroupRow(
            listed=listed[name],
            members=members.get(name),
            lag=lags.get(name),
            rebalances=None if rebalances is None else rebalances.get(name, 0),
        )
        for name in sorted(listed)
    ]


def _members(
    cluster: Cluster,
    broker: BlockingConnection,
    request: DescribeGroupsRequest | ConsumerGroupDescribeRequest | ShareGroupDescribeRequest,
) -> dict[str, int]:
    groups = cluster.ask(broker, request).groups
    return {group.group_id: len(group.members) for group in groups if not group.error_code}


def _offsets(
    cluster: Cluster, broker: BlockingConnection, names: list[str]
) -> dict[str, dict[TopicPartition, int]]:
    version = broker.versions.best(OffsetFetchRequest, OFFSET_FETCH_MAX)
    if version < GROUPS_SINCE:
        return {name: committed_offsets(cluster, name) for name in names}
    asked = [OffsetFetchRequestGroup(group_id=name, topics=None) for name in names]
    answer: OffsetFetchResponse = cluster.ask(
        broker, OffsetFetchRequest(groups=asked), at_most=version
    )
    return {
        group.group_id: offsets_in(group.topics) for group in answer.groups if not group.error_code
    }


def _share_lags(
    cluster: Cluster, broker: BlockingConnection, names: list[str]
) -> dict[str, int | None]:
    """Return the lag of each share group, without partitions of unknown lag; None without any."""
    lags: dict[str, int | None] = {}
    for name, positions in start_offsets(cluster, broker, names).items():
        known = [position.lag for position in positions if position.lag is not None]
        lags[name] = sum(known) if known else None
    return lags


def _ends(cluster: Cluster, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
    ends: dict[TopicPartition, int] = {}
    for batch in _batches(sorted(partitions), PARTITIONS_AT_ONCE):
        ends |= known_offsets(cluster, dict.fromkeys(batch, END))
    return ends


def _starts(
    cluster: Cluster,
    committed: Iterable[dict[TopicPartition, int]],
    ends: dict[TopicPartition, int],
) -> dict[TopicPartition, int]:
    lowest: dict[TopicPartition, int] = {}
    for offsets in committed:
        for partition, offset in offsets.items():
            lowest[partition] = min(offset, lowest.get(partition, offset))
    starts: dict[TopicPartition, int] = {}
    for batch in _batches(sorted(lowest), PARTITIONS_AT_ONCE):
        committed_of_batch = {partition: lowest[partition] for partition in batch}
        starts |= starts_of_lagging(cluster, committed_of_batch, ends)
    return starts


def _lag(
    committed: dict[TopicPartition, int],
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
) -> int | None:
    known = [
        max(ends[partition] - max(offset, starts.get(partition, 0)), 0)
        for partition, offset in committed.items()
        if partition in ends
    ]
    return sum(known) if known else None


def _batches(items: Sequence[T], size: int = AT_ONCE) -> Iterator[list[T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch
