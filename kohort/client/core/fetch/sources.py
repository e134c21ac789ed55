"""The brokers that partitions are read from: leaders, or the followers that these have named."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from kohort.client.core.fetch.read_replicas import ReadReplicas
from kohort.client.core.partitions import TopicPartition
from kohort.client.core.topics import Leader, TopicInfo


class KnownCluster(Protocol):
    """What metadata say of a cluster at the moment."""

    @property
    def topics(self) -> Mapping[str, TopicInfo]:
        """By name."""

    def leader(self, partition: TopicPartition) -> Leader | None:
        """Its leader, None if that is not known."""

    def is_online(self, partition: TopicPartition, node_id: int) -> bool:
        """Whether this broker has a replica of it, and it is known where the broker is."""

    def broker(self, node_id: int) -> object | None:
        """Where a broker is, None if that is not known."""


class FetchSources:
    """The brokers that one consumer reads from. Times are of any clock that does not go back."""

    def __init__(self, cluster: KnownCluster, *, rack: str | None, lifetime_ms: int) -> None:
        """`rack`: where the consumer is, for leaders to choose by; None: it does not say.
        `lifetime_ms`: how long a follower is read from before the leader is asked again.
        """
        self._cluster = cluster
        self._rack = rack or ""
        self._replicas = ReadReplicas(lifetime_ms)

    def node(self, partition: TopicPartition, now_ms: int) -> int | None:
        """The broker to ask; None: none is known, or not where it is."""
        cluster = self._cluster
        leader = cluster.leader(partition)
        if leader is None:
            return None
        # Asked for every partition in every plan, and mostly there are no followers.
        if not self._replicas.is_empty:
            follower = self._replicas.find(partition, leader, now_ms)
            if follower is not None and cluster.is_online(partition, follower):
                return follower
        return None if cluster.broker(leader.node_id) is None else leader.node_id

    def rack_to_tell(self, partitions: Iterable[TopicPartition], now_ms: int) -> str:
        """In a request for these; empty: nothing."""
        if self._rack and self._replicas.may_be_named(partitions, now_ms):
            return self._rack
        return ""

    def leader_named(
        self, partition: TopicPartition, follower: int, leader: Leader, now_ms: int
    ) -> bool:
        """The answer of this leader names the follower to ask instead, or none if it is negative;
        whether it names one.
        """
        if follower < 0 and self._replicas.is_empty:
            return False
        return self._replicas.named(partition, follower, leader, now_ms)

    def is_doubtful(self, partition: TopicPartition, now_ms: int) -> bool:
        """Whether the follower that was named is not there, or has failed lately."""
        replicas, cluster = self._replicas, self._cluster
        leader = cluster.leader(partition)
        if leader is None:
            return True
        follower = replicas.find(partition, leader, now_ms)
        is_there = follower is not None and cluster.is_online(partition, follower)
        return not (is_there and replicas.may_be_named([partition], now_ms))

    def failed(self, partition: TopicPartition, node_id: int, now_ms: int) -> None:
        """It does not get it from there; a follower is done without for a while."""
        self._replicas.failed(partition, node_id, now_ms)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """The others are not assigned any more."""
        self._replicas.keep_only(partitions)
