"""The brokers that partitions are read from: leaders, or followers named by them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from kohort.client.core.fetch.read_replicas import ReadReplicas
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.topics import Leader, TopicInfo


class KnownCluster(Protocol):
    """Current cluster metadata."""

    @property
    def topics(self) -> Mapping[str, TopicInfo]:
        """Topics by name."""

    def leader(self, partition: TopicPartition) -> Leader | None:
        """Return the leader of a partition, None if unknown."""

    def is_online(self, partition: TopicPartition, node_id: int) -> bool:
        """Whether this broker has a replica of the partition, and its address is known."""

    def broker(self, node_id: int) -> object | None:
        """Return a broker's address, None if unknown."""


class FetchSources:
    """The brokers that one consumer reads from. Times are of any monotonic clock."""

    def __init__(self, cluster: KnownCluster, *, rack: str | None, lifetime_ms: int) -> None:
        """`rack`: the consumer's location, by which leaders select followers; None: not sent.
        `lifetime_ms`: how long a follower is used before the leader is asked again.
        """
        self._cluster = cluster
        self._rack = rack or ""
        self._replicas = ReadReplicas(lifetime_ms)

    def node(self, partition: TopicPartition, now_ms: int) -> int | None:
        """Return the broker to ask; None if it, or its address, is unknown."""
        cluster = self._cluster
        leader = cluster.leader(partition)
        if leader is None:
            return None
        # Called for every partition in every plan, and usually there are no followers.
        if not self._replicas.is_empty:
            follower = self._replicas.find(partition, leader, now_ms)
            if follower is not None and cluster.is_online(partition, follower):
                return follower
        return None if cluster.broker(leader.node_id) is None else leader.node_id

    def rack_to_tell(self, partitions: Iterable[TopicPartition], now_ms: int) -> str:
        """Return the rack to send with a request for these partitions; empty for none."""
        if self._rack and self._replicas.may_be_named(partitions, now_ms):
            return self._rack
        return ""

    def leader_named(
        self, partition: TopicPartition, follower: int, leader: Leader, now_ms: int
    ) -> bool:
        """Record the follower named in the leader's response; negative for none. Returns whether
        there is one to read from.
        """
        if follower < 0 and self._replicas.is_empty:
            return False
        return self._replicas.named(partition, follower, leader, now_ms)

    def is_doubtful(self, partition: TopicPartition, now_ms: int) -> bool:
        """Whether the named follower is offline, or has failed recently."""
        replicas, cluster = self._replicas, self._cluster
        leader = cluster.leader(partition)
        if leader is None:
            return True
        follower = replicas.find(partition, leader, now_ms)
        is_there = follower is not None and cluster.is_online(partition, follower)
        return not (is_there and replicas.may_be_named([partition], now_ms))

    def failed(self, partition: TopicPartition, node_id: int, now_ms: int) -> None:
        """Record that this broker does not serve the partition;
        a follower is avoided for a while.
        """
        self._replicas.failed(partition, node_id, now_ms)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all other partitions, which are no longer assigned."""
        self._replicas.keep_only(partitions)
