"""Reads __consumer_offsets of a cluster into the core, without joining a group."""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from time import time
from typing import Any, Final, TypeAlias

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.configs import Kind, Resource, described
from kohort.admin.history import read_batches
from kohort.admin.offsets import END, START, checked_offsets
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.record import decode_records
from kohort.watch.core.clock import ClockDifference
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.seen import Place
from kohort.watch.core.watcher import Watcher, key_prefix

Json: TypeAlias = dict[str, Any]
Report: TypeAlias = Callable[[int, int], None]
"""Called with the number of offsets that have been read, and of all that are to be read."""

TOPIC: Final = "__consumer_offsets"

_SESSION: Final = "consumer.session.timeout.ms"
_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"


@dataclass(slots=True)
class _Position:
    """How far a partition has been read."""

    next_offset: int
    gap_offset: int = -1
    """See `Place.gap_offset`."""


class OffsetsReader:
    """Reads the partition of a group, or all partitions, from their beginning.

    Its methods raise RefusedError if the topic does not exist or cannot be read, DisconnectedError,
    and DecodeError for damaged batches.
    """

    def __init__(self, cluster: Cluster, group: str | None, left_out: Container[str] = ()) -> None:
        """`group` is None for all groups, but those that are left out."""
        self._cluster = cluster
        topic = cluster.metadata([TOPIC]).topics[0]
        if topic.error_code:
            raise RefusedError(topic.error_code, f"{TOPIC} cannot be read")
        count = len(topic.partitions)
        self._partitions = range(count) if group is None else [partition_of(group, count)]
        self._prefix = None if group is None else key_prefix(group)
        starts = checked_offsets(cluster, {(TOPIC, index): START for index in self._partitions})
        self._positions = {index: _Position(offset) for (_, index), offset in starts.items()}
        self.watcher = Watcher(_topic_names(cluster), _Configs(cluster).timeouts_of, left_out)
        self._ends: dict[int, int] = {}
        self.is_live = False
        """Whether records are read as they are written."""
        self._clock = ClockDifference()

    @property
    def ahead_ms(self) -> int | None:
        """See `ClockDifference.ahead_ms`."""
        return self._clock.ahead_ms

    def ends(self) -> dict[int, int]:
        """Return the present end of each partition."""
        ends = checked_offsets(self._cluster, {(TOPIC, index): END for index in self._partitions})
        self._ends = {index: offset for (_, index), offset in ends.items()}
        return self._ends

    @property
    def lag(self) -> int:
        """Number of records up to the last known ends that are not read yet; for any thread."""
        return max(self._left(self._ends), 0) if self._ends else 0

    def _left(self, ends: dict[int, int]) -> int:
        """Return the number of offsets to read up to `ends`."""
        return sum(
            ends[index] - position.next_offset for index, position in self._positions.items()
        )

    def read(self, ends: dict[int, int], report: Report | None = None) -> Iterator[Json]:
        """Read up to `ends`, and yield records of the history; `report` is called after each
        batch.
        """
        total = self._left(ends)
        for index, position in self._positions.items():
            for record in self._read(index, position, ends[index]):
                if record is not None:
                    yield record
                elif report is not None:
                    report(total - self._left(ends), total)

    def _read(self, index: int, position: _Position, end: int) -> Iterator[Json | None]:
        """Read a partition; yield None after each batch."""
        start = position.next_offset
        for header, batch in read_batches(self._cluster, TOPIC, index, start, end):
            is_whole = header.record_count == header.last_offset_delta + 1
            if header.base_offset > position.next_offset or not is_whole:
                position.gap_offset = header.base_offset
            if not header.is_control:
                place = Place(
                    index,
                    header.base_offset,
                    header.partition_leader_epoch,
                    header.is_transactional,
                    position.gap_offset,
                )
                records = decode_records(batch, header)
                yield from self.watcher.take(records, place, self._prefix)
            position.next_offset = header.next_offset
            yield None
            if self.is_live:
                self._clock.compare(int(time() * 1000), header.max_timestamp)
        if position.next_offset < end:
            # They were deleted meanwhile, or the partition has no leader.
            position.next_offset = position.gap_offset = end


def _topic_names(cluster: Cluster) -> dict[bytes, str]:
    return {
        topic.topic_id: topic.name or ""
        for topic in cluster.metadata(None).topics
        if any(topic.topic_id)
    }


class _Configs:
    """Settings of consumer groups, requested when the first record of one is read."""

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
            return Timeouts(is_known=False)
        values = {config.name: int(config.value) for config in configs if config.value}
        default = Timeouts()
        return Timeouts(
            values.get(_SESSION, default.session_ms),
            values.get(_HEARTBEAT, default.heartbeat_ms),
            is_known={_SESSION, _HEARTBEAT} <= values.keys(),
        )


_WITHOUT_CONFIGS: Final = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
