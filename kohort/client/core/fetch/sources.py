"""The brokers from which partitions are read: leaders, or their preferred read replicas."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from kohort.client.core.partitions import TopicPartition
from kohort.client.core.topics import Leader, TopicInfo

LEADER_ALONE_MS: Final = 30_000
"""How long a partition is read from its leader after a follower has failed:
replica.lag.time.max.ms, after which the leader removes a dead follower from the ISR."""


class _Named(NamedTuple):
    node_id: int
    leader: Leader
    """The leader that returned this preferred read replica."""
    until_ms: int


class KnownCluster(Protocol):
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
    """The brokers that one consumer reads from. Times are milliseconds of any monotonic clock.

    A leader that knows the consumer's rack may return a follower in the same rack, the preferred
    read replica, and no records (KIP-392). This follower is used until its lease ends, the leader
    changes, or the follower does not serve the partition; then the leader is asked again.

    If only the consumer cannot reach the follower, the leader would return the same follower again
    and again. So after a failure, requests omit the rack for a while, and the leader serves the
    partition. Java keeps sending the rack, and alternates between leader and follower.
    """

    def __init__(self, cluster: KnownCluster, *, rack: str | None, lifetime_ms: int) -> None:
        """`rack`: the consumer's location, by which leaders select followers; None: not sent.
        `lifetime_ms`: how long a follower is used before the leader is asked again.
        """
        self._cluster = cluster
        self._rack = rack or ""
        self._lifetime_ms = lifetime_ms
        self._named: dict[TopicPartition, _Named] = {}
        self._leader_alone: dict[TopicPartition, int] = {}
        """The time until which requests for a partition omit the consumer's rack."""

    def node(self, partition: TopicPartition, now_ms: int) -> int | None:
        """Return the broker to fetch from; None if the broker, or its address, is unknown."""
        cluster = self._cluster
        leader = cluster.leader(partition)
        if leader is None:
            return None
        # Called for every partition in every plan, and usually there are no followers.
        if self._named:
            follower = self._follower(partition, leader, now_ms)
            if follower is not None and cluster.is_online(partition, follower):
                return follower
        return None if cluster.broker(leader.node_id) is None else leader.node_id

    def rack_to_tell(self, partitions: Iterable[TopicPartition], now_ms: int) -> str:
        """Return the rack to send with a request for these partitions; empty for none."""
        return self._rack if self._rack and self._may_be_named(partitions, now_ms) else ""

    def leader_named(
        self, partition: TopicPartition, follower: int, leader: Leader, now_ms: int
    ) -> bool:
        """Record a leader's preferred read replica (-1: none); return whether it is a follower."""
        if follower < 0 or follower == leader.node_id:
            self._named.pop(partition, None)
            return False
        self._named[partition] = _Named(follower, leader, now_ms + self._lifetime_ms)
        return True

    def failed(self, partition: TopicPartition, node_id: int, now_ms: int) -> None:
        """If this broker is the preferred read replica, read from the leader for a while."""
        named = self._named.get(partition)
        if named is not None and named.node_id == node_id:
            del self._named[partition]
            self._leader_alone[partition] = now_ms + LEADER_ALONE_MS

    def is_doubtful(self, partition: TopicPartition, now_ms: int) -> bool:
        """Whether the preferred read replica is unknown or offline, or one has failed recently."""
        leader = self._cluster.leader(partition)
        if leader is None:
            return True
        follower = self._follower(partition, leader, now_ms)
        is_there = follower is not None and self._cluster.is_online(partition, follower)
        return not (is_there and self._may_be_named([partition], now_ms))

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """Forget all other partitions, which are no longer assigned."""
        for known in (self._named, self._leader_alone):
            for gone in known.keys() - partitions:
                del known[gone]

    def _follower(self, partition: TopicPartition, leader: Leader, now_ms: int) -> int | None:
        """Return the follower to read from; None: read from `leader`, the current leader."""
        named = self._named.get(partition)
        if named is None:
            return None
        if named.leader != leader or named.until_ms <= now_ms:
            del self._named[partition]
            return None
        return named.node_id

    def _may_be_named(self, partitions: Iterable[TopicPartition], now_ms: int) -> bool:
        """Whether no preferred read replica of these partitions has failed recently."""
        alone = self._leader_alone
        for partition in [tp for tp, until_ms in alone.items() if until_ms <= now_ms]:
            del alone[partition]
        return not alone or alone.keys().isdisjoint(partitions)
