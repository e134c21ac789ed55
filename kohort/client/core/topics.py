"""What metadata has said of topics, and which of two sayings is the newer one. Pure.

Brokers learn of changes one after the other, and any of them may be asked. So what one says may be
older than what another has said before: a leader of an older epoch, or a topic by the id that it
had before it was deleted and created again. Neither is taken (KIP-320, KIP-516).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID

IDS_MAX: Final = 16
"""How many ids of one topic are remembered, the newest ones."""
GONE_MAX: Final = 1_000
"""How many topics that are gone may be remembered by their ids."""


class Leader(NamedTuple):
    """The broker that serves a partition, and its leader epoch."""

    node_id: int
    epoch: int


class TopicInfo(NamedTuple):
    """A topic as metadata has it."""

    name: str
    topic_id: bytes
    is_internal: bool
    error: ErrorCode
    leaders: Mapping[int, Leader]
    """By partition; those without a leader are missing."""
    partition_count: int
    replicas: Mapping[int, Collection[int]]
    """By partition the brokers that have it, and can serve it."""
    epochs: Mapping[int, int]
    """By partition the newest leader epoch, whether or not there is a leader; -1: not known."""


class KnownTopics:
    """Topics that one client knows."""

    def __init__(self) -> None:
        self.infos: dict[str, TopicInfo] = {}
        """By name."""
        self._ids: dict[str, list[bytes]] = {}
        """That a topic has had, the newest last."""

    def learn(self, found: Iterable[TopicInfo], *, is_complete: bool = False) -> None:
        """An answer has these; `is_complete`: and there are no others."""
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
            # From before Kafka 2.8: it may be another topic, whose epochs start over.
            return found
        older = [
            index
            for index, epoch in found.epochs.items()
            if 0 <= epoch < known.epochs.get(index, -1)
        ]
        return _with_partitions_of(known, found, older) if older else found

    def _is_former(self, found: TopicInfo) -> bool:
        """Whether it is an id that another one has replaced."""
        return found.topic_id in self._ids.get(found.name, ())[:-1]

    def _remember(self, info: TopicInfo) -> None:
        if info.topic_id == ZERO_UUID:
            return
        ids = self._ids.setdefault(info.name, [])
        if info.topic_id not in ids:
            ids.append(info.topic_id)
            del ids[:-IDS_MAX]


def _with_partitions_of(known: TopicInfo, found: TopicInfo, chosen: Iterable[int]) -> TopicInfo:
    """`found`, with these partitions as they were known."""
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
