"""Whom partitions are read from: their leaders, or the followers that these have named."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from kohort.client.clock import now_ms
from kohort.client.core.fetch.read_replicas import Leader, ReadReplicas
from kohort.client.core.partitions import TopicPartition
from kohort.client.net.cluster import Cluster

logger = logging.getLogger(__name__)


class FetchSources:
    """Those of one fetcher."""

    def __init__(self, cluster: Cluster, *, rack: str | None, lifetime_ms: int) -> None:
        """`rack`: where the consumer is, for leaders to choose by; None: it does not say.
        `lifetime_ms`: how long a follower is read from before the leader is asked again.
        """
        self._cluster = cluster
        self._rack = rack or ""
        self._replicas = ReadReplicas(lifetime_ms)

    def node(self, partition: TopicPartition) -> int | None:
        """Whom to ask; None: nobody is known, or not where."""
        cluster = self._cluster
        leader = cluster.leader(partition)
        if leader is None:
            return None
        # Asked for every partition in every plan, and mostly there are no followers.
        if not self._replicas.is_empty:
            follower = self._replicas.find(partition, leader, now_ms())
            if follower is not None and cluster.is_online(partition, follower):
                return follower
        return None if cluster.broker(leader.node_id) is None else leader.node_id

    def rack_to_tell(self, partitions: Iterable[TopicPartition]) -> str:
        """In a request for these; empty: nothing."""
        if self._rack and self._replicas.may_be_named(partitions, now_ms()):
            return self._rack
        return ""

    def leader_named(self, partition: TopicPartition, follower: int, leader: Leader) -> bool:
        """The answer of this leader names the follower to ask instead, or none if it is negative;
        whether it names one.
        """
        if follower < 0 and self._replicas.is_empty:
            return False
        if not self._replicas.named(partition, follower, leader, now_ms()):
            return False
        logger.debug("%s-%d: to be read from broker %d, a follower", *partition, follower)
        return True

    def is_doubtful(self, partition: TopicPartition) -> bool:
        """Whether the follower that was named is not there, or has failed lately."""
        replicas, cluster = self._replicas, self._cluster
        leader = cluster.leader(partition)
        if leader is None:
            return True
        follower = replicas.find(partition, leader, now_ms())
        is_there = follower is not None and cluster.is_online(partition, follower)
        return not (is_there and replicas.may_be_named([partition], now_ms()))

    def failed(self, partition: TopicPartition, node_id: int) -> None:
        """It does not get it from there; a follower is done without for a while."""
        self._replicas.failed(partition, node_id, now_ms())

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """The others are not assigned any more."""
        self._replicas.keep_only(partitions)
