"""Topic metadata, and which of two responses is newer. Pure.

Brokers learn of changes at different times, and any of them may be asked. So a response may be
older than the one before: it may have a leader of an older epoch, or a topic by the id that it had
before it was deleted and recreated. Such data is ignored (KIP-320, KIP-516).
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
    """The leader of a partition, and its leader epoch."""

    node_id: int
    epoch: int


class TopicInfo(NamedTuple):
    """The metadata of a topic."""

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
    """The topics that one client knows."""

    def __init__(self) -> None:
        self.infos: dict[str, TopicInfo] = {}
        """Topics by name."""
        self._ids: dict[str, list[bytes]] = {}
        """The ids that each topic has had, the newest last."""

    def learn(self, found: Iterable[TopicInfo], *, is_complete: bool = False) -> None:
        """Take over the topics of a response; with `is_complete` there are no others."""
        before = dict(self.infos)
        if is_complete:
            self.infos.clear()
        for info in found:
            known = before.get(info.name)
            self.infos[info.name] = info if known is None else self._newer(known, info)
            self._remember(info)
        if len(self._ids) > len(self.infos) + GONE_MAX:
            self._ids = {name: ids for name, ids in self._ids.items() if name in self.infos}

    def _newer(self, known: TopicInfo, found: TopicInfo) -> TopicInfo:
        if found.topic_id != known.topic_id:
            return known if self._is_former(found) else found
        if found.topic_id == ZERO_UUID:
            # From before Kafka 2.8, without ids: it may be another topic, whose epochs start over.
            return found
        older = [
            index
            for index, epoch in found.epochs.items()
            if 0 <= epoch < known.epochs.get(index, -1)
        ]
        return _with_partitions_of(known, found, older) if older else found

    def _is_former(self, found: TopicInfo) -> bool:
        """Whether the response has an id of the topic that has since been replaced."""
        return found.topic_id in self._ids.get(found.name, ())[:-1]

    def _remember(self, info: TopicInfo) -> None:
        if info.topic_id == ZERO_UUID:
            return
        ids = self._ids.setdefault(info.name, [])
        if info.topic_id not in ids:
            ids.append(info.topic_id)
            del ids[:-IDS_MAX]


def _with_partitions_of(known: TopicInfo, found: TopicInfo, chosen: Iterable[int]) -> TopicInfo:
    """Return `found`, with these partitions as they were known before."""
    leaders, replicas = dict(found.leaders), dict(found.replicas)
    for index in chosen:
        leaders.pop(index, None)
        if index in known.leaders:
            leaders[index] = known.leaders[index]
        replicas[index] = known.replicas.get(index, ())
    epochs = {
        index: max(epoch, known.epochs.get(index, -1)) for index, epoch in found.epochs.items()
    }
    return found._replace(leaders=leaders, replicas=replicas, epochs=epochs)
