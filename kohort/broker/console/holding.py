"""Open transactions that hold groups back: a read_committed consumer cannot read past the first
record of an open transaction, the last stable offset.

The broker does not know the isolation level of a group. A group whose committed offset is exactly
the last stable offset, below the end, is assumed to be read_committed.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from kohort.broker.groups_seen import GroupSeen, ReadableOf, positions
from kohort.broker.metrics.partitions import open_partition
from kohort.broker.runtime.clock import Clock
from kohort.broker.topics.manager import TopicManager
from kohort.broker.transactions.host import TransactionHost
from kohort.formats.text import shown
from kohort.protocol.errors import KafkaError

HELD_MS: Final = 10_000
"""Transactions that have been open for less than this are usual, and are not shown."""

LOOKED_AT: Final = 200
"""Maximum number of a group's partitions that are checked for open transactions."""


class Holder(NamedTuple):
    """The first open transaction of a partition."""

    name: str
    """The transactional id, with its client if known, or else the producer id."""
    open_ms: int
    timeout_ms: int | None
    """The transaction timeout; None if no coordinator will end the transaction."""


class Holding:
    def __init__(self, host: TransactionHost, topics: TopicManager, clock: Clock) -> None:
        self._host = host
        self._topics = topics
        self._clock = clock

    def holder_at(self, topic_name: str, index: int, offset: int) -> Holder | None:
        """Return the open transaction that makes read_committed consumers wait at `offset`; None if
        they do not wait there, or it has been open for less than `HELD_MS`.
        """
        topic = self._topics.get(topic_name)
        partition = None if topic is None else open_partition(self._topics, topic, index)
        if partition is None or partition.failure is not None or offset >= partition.high_watermark:
            return None
        try:
            if partition.last_stable_offset != offset:
                return None
            first = partition.open_transactions(1)
        except KafkaError:
            return None
        if not first:
            return None
        now_ms = self._clock.wall_ms()
        open_ms, timeout_ms = now_ms - first[0].last_ms, None
        name = f"producer {first[0].producer_id}"
        for owner in self._host.ids.open():
            record = owner.record
            if record is None or record.producer_id != first[0].producer_id:
                continue
            name, timeout_ms = shown(owner.transactional_id), record.timeout_ms
            if owner.client is not None:
                client, address = shown(owner.client.client_id), owner.client.host.lstrip("/")
                name += f" (client {client}, host {address})"
            if record.start_ms >= 0:
                open_ms = now_ms - record.start_ms
            break
        return Holder(name, open_ms, timeout_ms) if open_ms >= HELD_MS else None


class Held(NamedTuple):
    partition: str
    """Topic and partition number, joined by a hyphen."""
    committed: int
    end: int
    holder: Holder


def held_positions(group: GroupSeen, readable: ReadableOf, holding: Holding) -> Iterator[Held]:
    """Yield the group's committed offsets at which it may wait for an open transaction."""
    for position in islice(positions(group, readable), LOOKED_AT):
        if position.lag and position.end is not None:
            offset = position.committed.offset
            holder = holding.holder_at(position.topic, position.partition, offset)
            if holder is not None:
                name = shown(f"{position.topic}-{position.partition}")
                yield Held(name, offset, position.end, holder)
