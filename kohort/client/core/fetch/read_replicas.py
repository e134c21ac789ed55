"""Which partitions are read from a follower, because their leader has named it (KIP-392). Pure.

A leader that is told in which rack a consumer is may name a follower in the same one, in an answer
without records. That follower is read from until its time is over, and then the leader is asked
again; and at once when there is another leader, or when the follower does not serve the partition.

Who was sent to a follower in vain would be sent there again: a leader does not notice that a
consumer cannot reach a follower which it can reach itself. So the rack is not told for a while
after that, and the leader serves the partition. Java tells it, and goes back and forth.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from kohort.client.core.partitions import TopicPartition
from kohort.client.core.topics import Leader

LEADER_ALONE_MS: Final = 30_000
"""How long a partition is left to its leader after a follower has failed: replica.lag.time.max.ms,
after which leaders do without a follower that is dead."""


class _Named(NamedTuple):
    node_id: int
    leader: Leader
    """The leader that has named it."""
    until_ms: int


class ReadReplicas:
    """The followers that one consumer reads from. Times are milliseconds of any clock that does
    not go back.
    """

    def __init__(self, lifetime_ms: int) -> None:
        """`lifetime_ms`: how long a follower is read from before the leader is asked again."""
        self._lifetime_ms = lifetime_ms
        self._named: dict[TopicPartition, _Named] = {}
        self._leader_alone: dict[TopicPartition, int] = {}
        """Until when the rack is not told."""

    @property
    def is_empty(self) -> bool:
        """Whether no partition has a follower to be read from, nor had one that has failed."""
        return not (self._named or self._leader_alone)

    def find(self, partition: TopicPartition, leader: Leader, now_ms: int) -> int | None:
        """The follower to read from; None: the leader, who is `leader` now."""
        named = self._named.get(partition)
        if named is None:
            return None
        if named.leader != leader or named.until_ms <= now_ms:
            del self._named[partition]
            return None
        return named.node_id

    def named(self, partition: TopicPartition, node_id: int, leader: Leader, now_ms: int) -> bool:
        """An answer of the leader names this follower, or none if it is negative; whether there
        is one to be read from.
        """
        if node_id < 0 or node_id == leader.node_id:
            self._named.pop(partition, None)
            return False
        self._named[partition] = _Named(node_id, leader, now_ms + self._lifetime_ms)
        return True

    def failed(self, partition: TopicPartition, node_id: int, now_ms: int) -> None:
        """This broker does not serve it. Nothing happens if it is not the follower of now."""
        named = self._named.get(partition)
        if named is not None and named.node_id == node_id:
            del self._named[partition]
            self._leader_alone[partition] = now_ms + LEADER_ALONE_MS

    def may_be_named(self, partitions: Iterable[TopicPartition], now_ms: int) -> bool:
        """Whether a leader that is asked for these may name followers of them."""
        alone = self._leader_alone
        if not alone:
            return True
        for partition in [one for one, until_ms in alone.items() if until_ms <= now_ms]:
            del alone[partition]
        return alone.keys().isdisjoint(partitions)

    def keep_only(self, partitions: Collection[TopicPartition]) -> None:
        """The others are not assigned any more."""
        for known in (self._named, self._leader_alone):
            for gone in known.keys() - partitions:
                del known[gone]
