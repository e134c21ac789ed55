"""What the collectors read of the broker's parts. The real ones satisfy it as they are."""

from collections.abc import Mapping, Sequence, Sized
from enum import Enum
from typing import Protocol


class LogSource(Protocol):
    """A partition's log."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def segment_count(self) -> int: ...


class PartitionSource(Protocol):
    """A partition; see `broker.topics.partition`."""

    @property
    def index(self) -> int: ...
    @property
    def log(self) -> LogSource: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def visible_bytes(self) -> int: ...
    @property
    def failure(self) -> Exception | None: ...


class TopicSource(Protocol):
    """A topic; see `broker.topics.manager`."""

    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> Sequence[PartitionSource]: ...


class OffsetSource(Protocol):
    """A committed position."""

    @property
    def offset(self) -> int: ...


class OffsetTableSource(Protocol):
    """The committed positions of one group; see `broker.core.group.offset_table`."""

    @property
    def count(self) -> int: ...
    def topics(self) -> Mapping[str, Mapping[int, OffsetSource]]: ...


class GroupSource(Protocol):
    """A consumer group; see `broker.core.group`."""

    @property
    def group_id(self) -> str: ...
    @property
    def state(self) -> Enum: ...
    @property
    def roster(self) -> Sized: ...
    @property
    def offsets(self) -> OffsetTableSource: ...


class PurgatorySource(Protocol):
    """See `broker.core.purgatory`."""

    @property
    def held_bytes(self) -> int: ...
    def stats(self) -> Mapping[str, Mapping[str, int]]: ...
