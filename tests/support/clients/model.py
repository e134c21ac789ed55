"""What the tests ask of every client library, so that one test can be about all of them.

An adapter in `tests.support.clients` does it with one library. Only what each of them can do is
here.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
CODECS: tuple[Codec, ...] = ("none", "gzip", "snappy", "lz4", "zstd")

Isolation = Literal["read_uncommitted", "read_committed"]

MAX_REQUEST_BYTES = 1_048_576
"""Given to every producer, for the sake of records of 1 MB. The broker's own limit is 1,048,588."""

AN_HOUR_AGO_MS = (int(time.time()) - 3600) * 1000
"""For records with times of their own: any much older could fall to retention while a test runs."""

CONSUMED_WITHIN_S = 120.0
"""For what takes a moment; where a JVM does it for the first time, seconds."""

SESSION_TIMEOUT_MS = 30_000
"""Every group member's: longer than a real Kafka takes to start again on a busy machine."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record to send or as read. To be sent, a partition or timestamp of None leaves it open."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = 0
    offset: int | None = None


def records_in(batches: Mapping[Any, Iterable[Any]]) -> list[Record]:
    """What aiokafka or kafka-python returns of a poll: its own records by partition."""
    return [
        Record(
            value=message.value,
            key=message.key,
            headers=tuple(message.headers),
            timestamp_ms=message.timestamp,
            partition=message.partition,
            offset=message.offset,
        )
        for messages in batches.values()
        for message in messages
    ]


def content(record: Record) -> tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]:
    """What the application put in: key, value and headers."""
    return record.key, record.value, record.headers


@dataclass(frozen=True, slots=True)
class Seat:
    """Under which name a member sits in its group, and how it is held there."""

    client_id: str | None = None
    """By default what the library calls itself."""
    instance_id: str | None = None
    """group.instance.id of a static member (KIP-345), which keeps its seat when it stops."""
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    strategy: str = "range"
    """partition.assignment.strategy, by its name in the protocol; not every adapter has others."""
    uses_consumer_protocol: bool = False
    """KIP-848, in which the broker has the timeouts and the strategy; not every adapter has it."""


ANY_SEAT = Seat()


class Member(ABC):
    """A consumer in a group, reading in the background.

    It commits what it has read before it gives a partition up, and leaves the group in `leave`; a
    static member only stops there, and the group waits for it to come back.
    """

    @abstractmethod
    def assigned(self) -> set[int]:
        """The partitions it holds now."""

    @abstractmethod
    def records(self) -> list[Record]:
        """All it has read so far, in its order of reading."""

    @abstractmethod
    def leave(self) -> None:
        """Commits and leaves; `records` stays valid. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.leave()


class Client(ABC):
    """One client library, talking to the broker at `bootstrap`."""

    name: str

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        codec: Codec = "none",
        idempotent: bool = False,
    ) -> None:
        """Sends with acks=all and returns when all are acknowledged; raises if one is not."""
        self._produce(topic, records, codec, idempotent)

    @abstractmethod
    def _produce(
        self, topic: str, records: Sequence[Record], codec: Codec, idempotent: bool
    ) -> None: ...

    @abstractmethod
    def consume(
        self, topic: str, count: int, *, timeout_s: float = CONSUMED_WITHIN_S
    ) -> list[Record]:
        """Reads all partitions from the beginning until `count` records are there or time is up."""

    @abstractmethod
    def join(self, group: str, topic: str, seat: Seat = ANY_SEAT) -> Member:
        """Joins a group with the range assignor, reading from the beginning."""
