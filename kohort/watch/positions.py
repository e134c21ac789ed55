"""The committed offsets of all groups, and the ends of their partitions.

The offsets come with the records that are read anyway; only the ends are requested, when somebody
looks at them.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.offsets import END, TopicPartition, known_offsets, starts_of_lagging
from kohort.broker.groups_seen import Readable
from kohort.client.core.errors import ConsumerError
from kohort.groups.encoding import decode
from kohort.groups.records import OffsetRecord
from kohort.groups.requests import CommittedOffset
from kohort.protocol.errors import DecodeError

logger = logging.getLogger(__name__)

Stored: TypeAlias = Mapping[bytes, bytes]
"""Values of committed offsets by key, as in the records."""


class GroupOffsets:
    """The committed offsets of one group."""

    __slots__ = ("_topics", "count")

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, CommittedOffset]] = {}
        self.count = 0

    def add(self, record: OffsetRecord) -> None:
        self._topics.setdefault(record.topic, {})[record.partition] = record.committed
        self.count += 1

    def topics(self) -> Mapping[str, Mapping[int, CommittedOffset]]:
        return self._topics


NO_OFFSETS: Final = GroupOffsets()


class Positions(NamedTuple):
    """Where all groups are."""

    by_group: Mapping[str, GroupOffsets]
    readable: Mapping[TopicPartition, Readable]
    """The offsets that can be read, of the partitions for which they are known."""


class PositionsReader:
    """Reads the positions, with connections of its own. It blocks, and is for one thread."""

    def __init__(self, stored: Callable[[], Stored], connect: Callable[[], Cluster]) -> None:
        """Args:
        stored: returns a copy of the committed offsets.
        connect: returns the cluster.
        """
        self._stored = stored
        self._connect = connect
        self._cluster: Cluster | None = None
        self._readable: Mapping[TopicPartition, Readable] = {}

    def read(self) -> Positions:
        """Return the present positions; while the cluster does not answer, with earlier ends."""
        by_group: dict[str, GroupOffsets] = {}
        first: dict[TopicPartition, int] = {}
        for key, value in self._stored().items():
            try:
                record = decode(key, value)
            except DecodeError:
                continue
            if isinstance(record, OffsetRecord):
                by_group.setdefault(record.group_id, GroupOffsets()).add(record)
                partition = record.topic, record.partition
                offset = record.committed.offset
                first[partition] = min(first.get(partition, offset), offset)
        try:
            self._readable = self._ask(first)
        except (ConsumerError, RefusedError) as error:
            logger.debug("The ends of partitions cannot be read: %s", error)
            self.close()
        return Positions(by_group, self._readable)

    def _ask(self, committed: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Readable]:
        """Return what can be read of partitions whose lowest committed offset is given."""
        if self._cluster is None:
            self._cluster = self._connect()
        ends = known_offsets(self._cluster, dict.fromkeys(committed, END))
        starts = starts_of_lagging(self._cluster, committed, ends)
        return {
            partition: Readable(starts.get(partition, 0), end) for partition, end in ends.items()
        }

    def close(self) -> None:
        """Close the connections; `read` opens new ones."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()
