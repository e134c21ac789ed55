"""The client's topic metadata, and the named topics that are missing in it. No I/O.

Brokers learn of changes at different times, and any of them may be queried. So a response may be
older than the previous one: it may have a lower leader epoch, or the former id of a topic that
has been deleted and recreated. Such data is ignored (KIP-320, KIP-516).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from kohort.client.core.errors import AuthorizationError, ConsumerError, UnknownTopicError
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.errors import ErrorCode
from kohort.protocol.types import ZERO_UUID

IDS_MAX: Final = 16
"""Maximum number of ids remembered per topic; the oldest ones are forgotten first."""
GONE_MAX: Final = 1_000
"""How many deleted topics are remembered by their ids; beyond that, all of them are forgotten."""


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
            # Brokers before Kafka 2.8 send no ids, so epochs do not show which response is newer:
            # the topic may have been recreated, with epochs that start over.
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


Named: TypeAlias = str | TopicPartition


class Comparison(NamedTuple):
    """The result of comparing the named topics with the metadata."""

    missed: list[str]
    """Newly missing names, to be logged."""
    error: ConsumerError | None
    """The error that the next poll raises."""


class ExpectedTopics:
    """The named topics and partitions of one consumer. Times are milliseconds of one clock."""

    def __init__(self, timeout_ms: int | None) -> None:
        """`timeout_ms`: how long a named topic may be missing; None: for ever."""
        self._timeout_ms = timeout_ms
        self._since: dict[Named, int | None] = {}
        """When each topic or partition was named, or later found deleted; None while it exists."""
        self._logged: set[Named] = set()

    def expect(
        self, topics: Collection[str], partitions: Iterable[TopicPartition], now_ms: int
    ) -> None:
        wanted: list[Named] = [*topics, *partitions]
        self._since = {named: self._since.get(named, now_ms) for named in wanted}
        self._logged &= self._since.keys()

    @property
    def is_waiting(self) -> bool:
        """Whether topics or partitions are missing, or have not been looked for yet."""
        return any(since_ms is not None for since_ms in self._since.values())

    def missing(self, now_ms: int) -> dict[str, float]:
        """Missing topics and partitions: seconds since each was named, or later found deleted."""
        return {
            _name(named): (now_ms - since_ms) / 1000
            for named, since_ms in self._since.items()
            if since_ms is not None and named in self._logged
        }

    def compare(self, known: Mapping[str, TopicInfo], now_ms: int) -> Comparison:
        missed: list[str] = []
        overdue: list[str] = []
        forbidden: list[str] = []
        for named in self._since:
            code = _state(named, known)
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                forbidden.append(named if isinstance(named, str) else named.topic)
            elif code is ErrorCode.INVALID_TOPIC_EXCEPTION:
                overdue.append(_name(named))  # An invalid name will never exist.
            elif code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._since[named] = None
                self._logged.discard(named)
            else:
                since_ms = self._since[named]
                if since_ms is None:  # It has been deleted.
                    since_ms = self._since[named] = now_ms
                if named not in self._logged:
                    self._logged.add(named)
                    missed.append(_name(named))
                if self._timeout_ms is not None and now_ms - since_ms >= self._timeout_ms:
                    overdue.append(_name(named))
        return Comparison(missed, _error(forbidden, overdue))


def _state(named: Named, known: Mapping[str, TopicInfo]) -> ErrorCode:
    topic = known.get(named if isinstance(named, str) else named.topic)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    is_beyond = not isinstance(named, str) and named.partition >= topic.partition_count
    if is_beyond and topic.error is ErrorCode.NONE:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return topic.error


def _name(named: Named) -> str:
    return named if isinstance(named, str) else f"{named.topic}-{named.partition}"


def _error(forbidden: list[str], overdue: list[str]) -> ConsumerError | None:
    if forbidden:
        return AuthorizationError(
            f"not allowed to read {', '.join(sorted({*forbidden}))}; the principal needs READ and"
            " DESCRIBE on them",
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
    if overdue:
        return UnknownTopicError(
            f"no such topic or partition: {', '.join(sorted(overdue))}; create it, check its name,"
            " or set missing_topic_timeout_ms to None to wait for it",
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
    return None
