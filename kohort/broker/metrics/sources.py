"""Protocols of the broker's parts as collectors read them; the real parts satisfy them."""

from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from typing import Protocol

from kohort.groups.description import GroupDescription


class LogSource(Protocol):
    """A partition's log."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def segments(self) -> Sized: ...
    @property
    def lost_offsets(self) -> int: ...
    @property
    def loaded_producers(self) -> "ProducersSource | None": ...


class ProducersSource(Protocol):
    """The producers of a partition; see `kohort.broker.core.partition.producers`."""

    def __len__(self) -> int: ...
    @property
    def first_open_last_ms(self) -> int | None: ...


class PartitionSource(Protocol):
    """A partition; see `kohort.broker.topics.partition`."""

    @property
    def index(self) -> int: ...
    @property
    def log(self) -> LogSource: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def held_offsets(self) -> int: ...
    @property
    def visible_bytes(self) -> int: ...
    @property
    def failure(self) -> Exception | None: ...


class PartitionsSource(Protocol):
    """A topic's partitions, by index; see `kohort.broker.topics.partition_list`."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> PartitionSource:
        """Return the partition, opened if it was not open."""
        ...

    def peek(self, index: int) -> PartitionSource | None:
        """Return the partition if it is open, else None."""
        ...


class TopicSource(Protocol):
    """A topic; see `kohort.broker.topics.topic`."""

    @property
    def name(self) -> str: ...
    @property
    def is_internal(self) -> bool: ...
    @property
    def partitions(self) -> PartitionsSource: ...


class CompactionSource(Protocol):
    """Compaction of logs; see `kohort.broker.topics.compaction`."""

    @property
    def uncleanable_count(self) -> int: ...
    @property
    def failure_count(self) -> int: ...


class TopicsSource(Protocol):
    """All topics; see `kohort.broker.topics.manager`."""

    @property
    def compaction(self) -> CompactionSource: ...
    def all(self) -> Iterable[TopicSource]: ...
    def get(self, name: str) -> TopicSource | None: ...


class OffsetSource(Protocol):
    """A committed position."""

    @property
    def offset(self) -> int: ...


class OffsetTableSource(Protocol):
    """The committed positions of one group; see `kohort.groups.offsets.table`."""

    @property
    def count(self) -> int: ...
    def topics(self) -> Mapping[str, Mapping[int, OffsetSource]]: ...


class GroupSource(Protocol):
    """A group; see `kohort.groups.group`."""

    def describe(self) -> GroupDescription: ...
    def gauges(self) -> Mapping[str, int]: ...
    @property
    def offsets(self) -> OffsetTableSource: ...


class GroupsSource(Protocol):
    """All groups; see `kohort.broker.coordinator.host`."""

    @property
    def load_times_ms(self) -> Sequence[int]: ...
    def groups(self) -> Iterable[GroupSource]: ...


class TransactionRecordSource(Protocol):
    """The durable record of a transactional id; see `kohort.broker.core.transaction.records`."""

    @property
    def start_ms(self) -> int: ...


class TransactionalIdSource(Protocol):
    """A transactional id; see `kohort.broker.core.transaction.transactional_id`."""

    @property
    def record(self) -> TransactionRecordSource | None: ...


class TransactionalIdsSource(Protocol):
    """The known transactional ids; see `kohort.broker.transactions.known_ids`."""

    def __len__(self) -> int: ...
    def open(self) -> Collection[TransactionalIdSource]: ...


class TransactionsSource(Protocol):
    """The host of the transactional ids; see `kohort.broker.transactions.host`."""

    @property
    def ids(self) -> TransactionalIdsSource: ...
    @property
    def stuck_count(self) -> int: ...
    @property
    def counts(self) -> Mapping[str, int]: ...
    @property
    def load_times_ms(self) -> Sequence[int]: ...
    @property
    def late_before_ms(self) -> int: ...


class HistorySource(Protocol):
    """The rebalance history; see `kohort.broker.history.history`."""

    def stats(self) -> Mapping[str, int]:
        """Return a mapping with records, memory_bytes, waiting, lost and dropped."""
        ...


class PurgatorySource(Protocol):
    """The purgatory; see `kohort.broker.core.purgatory`."""

    @property
    def held_bytes(self) -> int: ...
    def stats(self) -> Mapping[str, Mapping[str, int]]: ...


class RequestMemorySource(Protocol):
    @property
    def used_bytes(self) -> int: ...


class UnsentSource(Protocol):
    @property
    def total_bytes(self) -> int: ...


class TasksSource(Protocol):
    """The broker's own tasks; see `kohort.broker.runtime.lasting_tasks`."""

    @property
    def failure_counts(self) -> Mapping[str, int]: ...
    def failing(self) -> Sized: ...


class NetworkSource(Protocol):
    """The edge; see `kohort.broker.network.server`."""

    @property
    def memory(self) -> RequestMemorySource: ...
    @property
    def unsent(self) -> UnsentSource: ...
