"""The committed offsets of all groups, and the end offsets of their partitions.

The committed offsets are in the records that the watcher reads anyway. End offsets are requested
only for pages that show them.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.offsets import END, TopicPartition, known_offsets, starts_of_lagging
from kohort.broker.groups_seen import Readable
from kohort.client.core.errors import ConsumerError
from kohort.groups.requests import CommittedOffset
from kohort.watch.core.commits import Commit, committed

logger = logging.getLogger(__name__)


class GroupOffsets:
    """The committed offsets of one group, decoded on access: a cluster may have 100,000 of them."""

    __slots__ = ("_commits",)

    def __init__(self) -> None:
        self._commits: list[Commit] = []

    def add(self, commit: Commit) -> None:
        self._commits.append(commit)

    @property
    def count(self) -> int:
        return len(self._commits)

    def topics(self) -> Mapping[str, Mapping[int, CommittedOffset]]:
        topics: dict[str, dict[int, CommittedOffset]] = {}
        for commit in self._commits:
            offset = committed(commit.value)
            if offset is not None:
                topic, partition = commit.partition
                topics.setdefault(topic, {})[partition] = offset
        return topics


NO_OFFSETS: Final = GroupOffsets()


class Positions(NamedTuple):
    by_group: Mapping[str, GroupOffsets]
    readable: Mapping[TopicPartition, Readable]
    """Known start and end offsets; if no group lags, the start is not requested and given as 0."""


class PositionsReader:
    """Reads the positions, with connections of its own. It blocks, and is for one thread."""

    def __init__(
        self, commits: Callable[[], Sequence[Commit]], connect: Callable[[], Cluster]
    ) -> None:
        """`commits` returns the last commits of all partitions."""
        self._commits = commits
        self._connect = connect
        self._cluster: Cluster | None = None
        self._readable: Mapping[TopicPartition, Readable] = {}

    def read(self) -> Positions:
        """Return the current positions, with older end offsets if the cluster does not answer."""
        by_group: dict[str, GroupOffsets] = {}
        lowest: dict[TopicPartition, int] = {}
        for commit in self._commits():
            position = committed(commit.value)
            if position is not None:
                by_group.setdefault(commit.group_id, GroupOffsets()).add(commit)
                offset = lowest.get(commit.partition, position.offset)
                lowest[commit.partition] = min(offset, position.offset)
        try:
            self._readable = self._ask(lowest)
        except (ConsumerError, RefusedError) as error:
            logger.debug("The ends of partitions cannot be read: %s", error)
            self.close()
        return Positions(by_group, self._readable)

    def _ask(self, lowest: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, Readable]:
        """Return the readable offsets of partitions, given the lowest committed offset of each."""
        if self._cluster is None:
            self._cluster = self._connect()
        ends = known_offsets(self._cluster, dict.fromkeys(lowest, END))
        starts = starts_of_lagging(self._cluster, lowest, ends)
        return {
            partition: Readable(starts.get(partition, 0), end) for partition, end in ends.items()
        }

    def close(self) -> None:
        """Close the connections; `read` opens new ones."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()
