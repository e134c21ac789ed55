"""Reads a cluster's __consumer_offsets into `kohort.watch.core`, without joining a group."""

from collections.abc import Callable, Container, Iterator
from math import inf
from time import monotonic, time
from typing import Any, Final, TypeAlias

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.configs import Kind, Resource, described
from kohort.admin.offsets import END, START, TopicPartition, checked_offsets, leaders_of
from kohort.broker.core.coordinator_partitions import partition_of
from kohort.client.net.errors import DisconnectedError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.partition import OffsetsPartition
from kohort.watch.core.watcher import GROUPS_MAX, Watcher, key_prefix

Json: TypeAlias = dict[str, Any]
Report: TypeAlias = Callable[[int, int], None]
"""Called with the number of offsets read so far, and the total number to read."""

TOPIC: Final = "__consumer_offsets"

ANSWER_BYTES: Final = 2 << 20
"""Maximum size of a response, unless a single batch is larger."""

_FETCH_MAX: Final = 12
"""Last version with topic names; later ones have topic ids."""
_MAX_WAIT_MS: Final = 500

CONFIGS_S: Final = 3600.0

_SESSION: Final = "consumer.session.timeout.ms"
_HEARTBEAT: Final = "consumer.heartbeat.interval.ms"
_SHARE_SESSION: Final = "share.session.timeout.ms"
_SHARE_HEARTBEAT: Final = "share.heartbeat.interval.ms"


class OffsetsReader:
    """Reads the partition of a group, or all partitions, from their beginning.

    Its methods raise RefusedError if the topic does not exist or cannot be read, DisconnectedError,
    and DecodeError for damaged batches.
    """

    def __init__(self, cluster: Cluster, group: str | None, left_out: Container[str] = ()) -> None:
        """If `group` is None, read all groups except those in `left_out`."""
        self._cluster = cluster
        prefix = None if group is None else key_prefix(group)
        # Retry: in a new cluster, the topic was just created and may have no leaders yet.
        starts = cluster.retrying(lambda: _starts(cluster, group))
        self.watcher = Watcher(_topic_names(cluster), _Configs(cluster).timeouts_of, left_out)
        self._ends: dict[int, int] = {}
        self._partitions = {
            index: OffsetsPartition(self.watcher, index, offset, prefix)
            for (_, index), offset in starts.items()
        }
        self.is_live = False
        """Whether all records that existed at the start were read."""
        self._clock = ClockDifference()

    @property
    def ahead_ms(self) -> int | None:
        return self._clock.ahead_ms

    def ends(self) -> dict[int, int]:
        ends = checked_offsets(self._cluster, {(TOPIC, index): END for index in self._partitions})
        self._ends = {index: offset for (_, index), offset in ends.items()}
        return self._ends

    @property
    def lag(self) -> int:
        """Number of unread records up to the last known end offsets; for any thread."""
        return max(self._left(self._ends), 0) if self._ends else 0

    def _left(self, ends: dict[int, int]) -> int:
        """Return the number of offsets to read up to `ends`."""
        return sum(
            ends[index] - partition.next_offset for index, partition in self._partitions.items()
        )

    def read(self, ends: dict[int, int], report: Report | None = None) -> Iterator[Json]:
        """Read up to `ends`, and yield records of the history; `report` is called after each
        response. If a partition cannot be read, the error is raised after the others are read.
        """
        total = self._left(ends)
        failures: dict[int, RefusedError] = {}
        while wanted := self._unread(ends) - failures.keys():
            left = self._left(ends)
            for index, batches in self._fetch(wanted, failures):
                partition = self._partitions[index]
                yield from partition.take(batches, ends[index])
                if self.is_live and partition.batch_count:
                    now_ms = int(time() * 1000)
                    self._clock.compare(now_ms, partition.last_ms, partition.batch_count)
                if report is not None:
                    report(total - self._left(ends), total)
            if self._left(ends) == left:
                # Nothing was read: the remaining records were deleted meanwhile.
                for index in wanted - failures.keys():
                    self._partitions[index].pass_over(ends[index])
        for failure in failures.values():
            raise failure

    def _unread(self, ends: dict[int, int]) -> set[int]:
        """Return the partitions that have not been read up to `ends`."""
        return {
            index
            for index, partition in self._partitions.items()
            if partition.next_offset < ends[index]
        }

    def _fetch(
        self, indices: set[int], failures: dict[int, RefusedError]
    ) -> Iterator[tuple[int, bytes]]:
        """Send a Fetch to the leader of each partition; yield batches by partition, and add the
        partitions that cannot be read to `failures`.
        """
        leaders = leaders_of(self._cluster, {(TOPIC, index): None for index in indices})
        for leader, partitions in leaders.items():
            if leader is None:
                error = ErrorCode.LEADER_NOT_AVAILABLE
                for _, index in partitions:
                    failures[index] = RefusedError(error, f"{TOPIC}-{index} has no leader")
                continue
            request = FetchRequest(
                max_wait_ms=_MAX_WAIT_MS,
                min_bytes=1,
                max_bytes=ANSWER_BYTES,
                topics=[FetchTopic(topic=TOPIC, partitions=list(map(self._next, partitions)))],
            )
            answer: FetchResponse = self._cluster.ask(leader, request, at_most=_FETCH_MAX)
            for data in answer.responses[0].partitions:
                index = data.partition_index
                if data.error_code:
                    failures[index] = RefusedError(
                        data.error_code, f"{TOPIC}-{index} cannot be read"
                    )
                elif data.records:
                    yield index, bytes(data.records)

    def _next(self, partition: TopicPartition) -> FetchPartition:
        _, index = partition
        return FetchPartition(
            partition=index,
            fetch_offset=self._partitions[index].next_offset,
            partition_max_bytes=ANSWER_BYTES,
        )


def _topic_names(cluster: Cluster) -> dict[bytes, str]:
    return {
        topic.topic_id: topic.name or ""
        for topic in cluster.metadata(None).topics
        if any(topic.topic_id)
    }


def _starts(cluster: Cluster, group: str | None) -> dict[TopicPartition, int]:
    """Return the start offset of the group's partition, or of all partitions if `group` is None."""
    topic = cluster.metadata([TOPIC]).topics[0]
    if topic.error_code:
        raise RefusedError(topic.error_code, f"{TOPIC} cannot be read")
    count = len(topic.partitions)
    wanted = range(count) if group is None else [partition_of(group, count)]
    return checked_offsets(cluster, {(TOPIC, index): START for index in wanted})


class _Configs:
    """Settings of consumer groups, requested on first use, and again after `CONFIGS_S`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._known: dict[str, tuple[float, Timeouts]] = {}
        """The settings and when they were requested, by group."""

    def timeouts_of(self, group: str) -> Timeouts:
        """Return the timeouts: if no broker answers, the last known ones; if none are known, or the
        broker refuses the request, Kafka's defaults.
        """
        now_s = monotonic()
        requested_s, timeouts = self._known.get(group, (-inf, Timeouts(is_known=False)))
        if now_s < requested_s + CONFIGS_S:
            return timeouts
        try:
            timeouts = self._request(group)
        except DisconnectedError:
            return timeouts
        except RefusedError:
            timeouts = Timeouts(is_known=False)
        if len(self._known) >= GROUPS_MAX:
            self._known.clear()
        self._known[group] = now_s, timeouts
        return timeouts

    def _request(self, group: str) -> Timeouts:
        configs = described(
            self._cluster,
            self._cluster.controller(),
            Resource(Kind.GROUP, group),
            [_SESSION, _HEARTBEAT, _SHARE_SESSION, _SHARE_HEARTBEAT],
            f"the configs of group {group} cannot be read",
        )
        values = {config.name: int(config.value) for config in configs if config.value}
        default = Timeouts()
        return Timeouts(
            values.get(_SESSION, default.session_ms),
            values.get(_HEARTBEAT, default.heartbeat_ms),
            is_known={_SESSION, _HEARTBEAT} <= values.keys(),
            share_session_ms=values.get(_SHARE_SESSION, default.share_session_ms),
            share_heartbeat_ms=values.get(_SHARE_HEARTBEAT, default.share_heartbeat_ms),
        )


_COMPARED_MIN: Final = 20
"""Minimum number of batches for `ClockDifference`: one was probably read right after its write."""


class ClockDifference:
    """Compares this machine's clock with the timestamps of records that are read soon after they
    were written.
    """

    __slots__ = ("_ahead_ms", "_count")

    def __init__(self) -> None:
        self._ahead_ms = 0
        self._count = 0

    def compare(self, now_ms: int, stored_ms: int, batch_count: int = 1) -> None:
        """Record the time at which batches were read, and the last batch's timestamp."""
        ahead_ms = now_ms - stored_ms
        self._ahead_ms = min(self._ahead_ms, ahead_ms) if self._count else ahead_ms
        self._count += batch_count

    @property
    def ahead_ms(self) -> int | None:
        """Upper bound of how far this machine's clock is ahead of the brokers': the shortest time
        from a record's timestamp to its reading. None until enough batches were compared.
        """
        return self._ahead_ms if self._count >= _COMPARED_MIN else None
