"""Named topics and partitions that may not exist. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol, TypeAlias

from kohort.client.core.errors import AuthorizationError, ConsumerError, UnknownTopicError
from kohort.client.core.partitions import TopicPartition
from kohort.protocol.errors import ErrorCode

Named: TypeAlias = str | TopicPartition


class KnownTopic(Protocol):
    @property
    def error(self) -> ErrorCode: ...

    @property
    def partition_count(self) -> int: ...


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
        """The time since which each has been missing; None once it was seen, after which it may
        disappear again."""
        self._logged: set[Named] = set()

    def expect(
        self, topics: Collection[str], partitions: Iterable[TopicPartition], now_ms: int
    ) -> None:
        wanted: list[Named] = [*topics, *partitions]
        self._since = {named: self._since.get(named, now_ms) for named in wanted}
        self._logged &= self._since.keys()

    @property
    def is_waiting(self) -> bool:
        """Whether some have not appeared in metadata yet."""
        return any(since_ms is not None for since_ms in self._since.values())

    def missing(self, now_ms: int) -> dict[str, float]:
        """Missing topics and partitions by name, with the seconds since that was noticed."""
        return {
            _name(named): (now_ms - since_ms) / 1000
            for named, since_ms in self._since.items()
            if since_ms is not None and named in self._logged
        }

    def compare(self, known: Mapping[str, KnownTopic], now_ms: int) -> Comparison:
        missed: list[str] = []
        overdue: list[str] = []
        forbidden: list[str] = []
        for named, since_ms in self._since.items():
            code = _state(named, known)
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                forbidden.append(named if isinstance(named, str) else named.topic)
            elif code is ErrorCode.INVALID_TOPIC_EXCEPTION:
                overdue.append(_name(named))  # An invalid name will never exist.
            elif code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                self._since[named] = None
            elif since_ms is not None:
                if named not in self._logged:
                    self._logged.add(named)
                    missed.append(_name(named))
                if self._timeout_ms is not None and now_ms - since_ms >= self._timeout_ms:
                    overdue.append(_name(named))
        return Comparison(missed, _error(forbidden, overdue))


def _state(named: Named, known: Mapping[str, KnownTopic]) -> ErrorCode:
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
