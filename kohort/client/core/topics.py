"""Topic metadata, and which of two responses is newer. Pure.

Brokers learn of changes at different times, and any of them may be queried. So a response may be
older than the previous one: it may have a leader of an older epoch, or a topic by the id that it
had before it was deleted and recreated. Such data is ignored (KIP-320, KIP-516).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID

IDS_MAX: Final = 16
"""How many former ids of one topic are remembered, the newest ones."""
GONE_MAX: Final = 1_000
"""How many deleted topics may be remembered by their ids."""


class Leader(NamedTuple):
    node_id: int
    epoch: int


class TopicInfo(NamedTuple):
    name: str
    topic_id: bytes
    is_internal: bool
    error: ErrorCode
    leaders: Mapping[int, Leader]
    """Leaders by partition; partitions without a leader are missing."""
    partition_count: int
    replicas: Mapping[int, Collection[int]]
    """The brokers with an online replica, by partition."""
    epochs: Mapping[int, int]
    """The latest leader epoch by partition, whether or not there is a leader; -1: unknown."""


class KnownTopics:
    def __init__(self) -> None:
        self.infos: dict[str, TopicInfo] = {}
        self._ids: dict[str, list[bytes]] = {}
        """The ids that each topic has had, the newest last."""

    def learn(self, topics: Iterable[TopicInfo], *, is_complete: bool = False) -> None:
        """Apply the topics of a response; with `is_complete` all others are dropped."""
        before = dict(self.infos)
        if is_complete:
            self.infos.clear()
        for info in topics:
            known = before.get(info.name)
            self.infos[info.name] = info if known is None else self._newer(known, info)
            self._remember(info)
        if len(self._ids) > len(self.infos) + GONE_MAX:
            self._ids = {name: ids for name, ids in self._ids.items() if name in self.infos}

    def _newer(self, known: TopicInfo, update: TopicInfo) -> TopicInfo:
        if update.topic_id != known.topic_id:
            return known if self._is_former(update) else update
        if update.topic_id == ZERO_UUID:
            # Brokers before Kafka 2.8 send no ids: it may be another topic, whose epochs start
            # over.
            return update
        older = [
            index
            for index, epoch in update.epochs.items()
            if 0 <= epoch < known.epochs.get(index, -1)
        ]
        return _with_partitions_of(known, update, older) if older else update

    def _is_former(self, update: TopicInfo) -> bool:
        """Whether the response has a former id of the topic."""
        return update.topic_id in self._ids.get(update.name, ())[:-1]

    def _remember(self, info: TopicInfo) -> None:
        if info.topic_id == ZERO_UUID:
            return
        ids = self._ids.setdefault(info.name, [])
        if info.topic_id not in ids:
            ids.append(info.topic_id)
            del ids[:-IDS_MAX]


def _with_partitions_of(known: TopicInfo, update: TopicInfo, chosen: Iterable[int]) -> TopicInfo:
    """Return `update`, but with the `chosen` partitions of `known`."""
    leaders, replicas = dict(update.leaders), dict(update.replicas)
    for index in chosen:
        leaders.pop(index, None)
        if index in known.leaders:
            leaders[index] = known.leaders[index]
        replicas[index] = known.replicas.get(index, ())
    epochs = {
        index: max(epoch, known.epochs.get(index, -1)) for index, epoch in update.epochs.items()
    }
    return update._replace(leaders=leaders, replicas=replicas, epochs=epochs)
