"""Reads the assigned partitions ahead of the user, from all brokers at the same time.

What arrives waits, as bytes, until it is taken; records are made of it only then. How much may wait
is bounded (`FetchConfig.prefetch_bytes_limit`), so a consumer that does not poll stops reading.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from enum import IntEnum
from typing import Any, Final, TypeAlias

from client.core.offsets import RESET_LATEST, OffsetAndMetadata, ResetPolicy
from client.core.partitions import TopicPartition
from client.core.positions import Positions
from client.net.cluster import Cluster
from client.records import ConsumerRecord
from protocol.lazy_dataclass import dataclass

Records: TypeAlias = dict[TopicPartition, list[ConsumerRecord[Any, Any]]]

CommittedLookup: TypeAlias = Callable[
    [Collection[TopicPartition]],
    Awaitable[Mapping[TopicPartition, OffsetAndMetadata | None]],
]
"""Asks the group for committed offsets; None for a partition without one."""

Deserialiser: TypeAlias = Callable[[bytes | None], Any]


class IsolationLevel(IntEnum):
    """Whether records of transactions that are open or aborted are returned (KIP-98)."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class Deserialisers:
    """What makes keys and values of bytes; None leaves them as bytes."""

    key: Deserialiser | None = None
    value: Deserialiser | None = None


NO_DESERIALISERS: Final = Deserialisers()


@dataclass(frozen=True, slots=True)
class FetchConfig:
    """Kafka's settings of these names, and two of our own."""

    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 50 << 20
    """Of one answer; a first batch that is larger is returned all the same (KIP-74)."""
    max_partition_fetch_bytes: int = 1 << 20
    """The same, of one partition in one answer."""
    prefetch_bytes_limit: int = 50 << 20
    """Of all that may wait to be taken, as it was sent: compressed."""
    inflated_bytes_limit: int = 64 << 20
    """Of one batch when it is decompressed; a larger one is a RecordTooLargeError."""
    check_crcs: bool = True
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    auto_offset_reset: ResetPolicy = RESET_LATEST
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 30_000


class Fetcher:
    """That of one consumer, on one event loop. `take` and `next_record` never wait.

    `positions` may be changed by the consumer at any time (seek, pause, ...); it calls `wake`
    afterwards, or `assignment_changed` after `Positions.set_assigned`.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Positions,
        config: FetchConfig,
        deserialisers: Deserialisers = NO_DESERIALISERS,
        *,
        on_metadata_wanted: Callable[[], None],
    ) -> None:
        """`on_metadata_wanted` is called, at most every `retry_backoff_ms` or so, when a partition
        has no known leader or the wrong one; it returns at once, has the metadata refreshed, and
        `wake` called after that (without that call it takes a backoff longer).
        """
        raise NotImplementedError

    def start(self) -> None:
        """Begin to fetch whatever has a position."""
        raise NotImplementedError

    async def close(self) -> None:
        """Give up requests under way and forget all that waits. May be called twice."""
        raise NotImplementedError

    def take(self, max_records: int) -> Records:
        """Records that are here, in order within each partition, `max_records` at most in all.

        Positions move past them. Empty if there are none, which may be although `wait` returned:
        what came was not for users (markers, aborted transactions).

        Raises:
            RecordError, DeserialisationError: the next record of a partition cannot be given out;
                its position stays. Seek past it to go on.
            OffsetOutOfRangeError: and no policy for it.
            AuthorizationError: the topic may not be read.

        Such an error is raised once, and only when there are no records before it. If it lasts it
        comes again, because the partition is fetched again.
        """
        raise NotImplementedError

    def next_record(self) -> ConsumerRecord[Any, Any] | None:
        """As `take(1)`, for reading one by one: the position moves by this record only.

        None: there is none here; `wait` for it.
        """
        raise NotImplementedError

    async def wait(self, timeout_s: float) -> bool:
        """Until there is something to take (records or an error), or `wake` is called.

        Returns:
            whether there is something.
        """
        raise NotImplementedError

    def wake(self) -> None:
        """Something has changed (a position, a pause, the metadata); whoever waits returns."""
        raise NotImplementedError

    def assignment_changed(self) -> None:
        """Forget what was fetched of partitions that are gone, and fetch those that came."""
        raise NotImplementedError

    async def update_positions(self, committed: CommittedLookup | None) -> None:
        """See that all partitions get a position.

        Waits for `committed` (None: there is no group to ask, reset at once). Resets go on in the
        background, and are fetched as soon as they are found; `wait_positions` waits for them.
        Quick if nothing is missing: may be called in every poll.

        Raises:
            NoOffsetError: there is no committed offset and no policy.
            whatever `committed` raises.
            AuthorizationError, UnknownTopicError: a lookup before this call came to that.
        """
        raise NotImplementedError

    async def wait_positions(
        self, partitions: Collection[TopicPartition], timeout_s: float
    ) -> bool:
        """Until these have a position, or are not assigned any more.

        Returns:
            False if the time was over first.
        """
        raise NotImplementedError
