"""``kohort watch --once``: the history of groups, as far as __consumer_offsets reaches back."""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.configs import Kind, Resource, described
from kohort.admin.history import read_batches
from kohort.admin.offsets import END, START, checked_offsets
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.record import decode_records
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.seen import Place
from kohort.watch.core.watcher import Watcher

Json: TypeAlias = dict[str, Any]

TOPIC: Final = "__consumer_offsets"

_SESSION: Final = "consumer.session.timeout.ms"
_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"


class Progress(NamedTuple):
    """How much has been read."""

    read: int
    """Offsets."""
    total: int


class History(NamedTuple):
    """What the topic tells."""

    records: list[Json]
    """By group, oldest first."""
    since_ms: dict[str, int]
    """How far back the history of each group reaches."""
    unread_count: int
    """Records that could not be decoded."""


def read_history(
    cluster: Cluster, group: str | None, report: Callable[[Progress], None]
) -> History:
    """Read the history of a group, or of all.

    Raises:
        RefusedError: __consumer_offsets does not exist, or cannot be read.
        DisconnectedError, DecodeError
    """
    metadata = cluster.metadata([TOPIC]).topics[0]
    if metadata.error_code:
        raise RefusedError(metadata.error_code, f"{TOPIC} cannot be read")
    count = len(metadata.partitions)
    partitions = range(count) if group is None else [partition_of(group, count)]
    starts = checked_offsets(cluster, {(TOPIC, index): START for index in partitions})
    ends = checked_offsets(cluster, {(TOPIC, index): END for index in partitions})
    total = sum(ends[key] - starts[key] for key in ends)
    wanted = None if group is None else _prefix(group)
    watcher = Watcher(_topic_names(cluster), _Configs(cluster).timeouts_of)
    records: list[Json] = []
    done = 0
    for index in partitions:
        start, end = starts[TOPIC, index], ends[TOPIC, index]
        for read in _read(cluster, watcher, index, start, end, wanted):
            if isinstance(read, int):
                report(Progress(done + read - start, total))
            else:
                records.append(read)
        done += end - start
    records += watcher.flush()
    return History(records, watcher.since_ms, watcher.unread_count)


def _read(
    cluster: Cluster, watcher: Watcher, index: int, start: int, end: int, wanted: bytes | None
) -> Iterator[Json | int]:
    """Yield records of the history, and the offset after each batch."""
    gap_offset, next_offset = -1, start
    for header, batch in read_batches(cluster, TOPIC, index, start, end):
        if header.base_offset > next_offset or header.record_count <= header.last_offset_delta:
            gap_offset = header.base_offset
        next_offset = header.next_offset
        for record in () if header.is_control else decode_records(batch, header):
            key = record.key
            if key is None or not (wanted is None or key.startswith(wanted, _TYPE_BYTES)):
                continue
            place = Place(
                index,
                record.offset,
                header.partition_leader_epoch,
                header.is_transactional,
                gap_offset,
            )
            yield from watcher.take(key, record.value, record.headers, record.timestamp, place)
        yield next_offset


_TYPE_BYTES: Final = 2


def _prefix(group: str) -> bytes:
    """Return what follows the type in the keys of all records of a group."""
    encoded = group.encode("utf-8", "surrogatepass")
    return len(encoded).to_bytes(_TYPE_BYTES, "big") + encoded


def _topic_names(cluster: Cluster) -> dict[bytes, str]:
    return {
        topic.topic_id: topic.name or ""
        for topic in cluster.metadata(None).topics
        if any(topic.topic_id)
    }


class _Configs:
    """Settings of consumer groups, asked for when the first record of one is read."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def timeouts_of(self, group: str) -> Timeouts:
        """Return Kafka's defaults if the cluster does not say."""
        try:
            configs = described(
                self._cluster,
                self._cluster.controller(),
                Resource(Kind.GROUP, group),
                [_SESSION, _HEARTBEAT],
                f"the configs of group {group} cannot be read",
            )
        except RefusedError as error:
            if error.error not in _WITHOUT_CONFIGS:
                raise
            return Timeouts()
        values = {config.name: int(config.value) for config in configs if config.value}
        default = Timeouts()
        return Timeouts(
            values.get(_SESSION, default.session_ms), values.get(_HEARTBEAT, default.heartbeat_ms)
        )


_WITHOUT_CONFIGS: Final = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
