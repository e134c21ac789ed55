"""Parts of a broker as the collectors see them, with nothing behind them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final, cast

from prometheus_client.metrics_core import Metric

from kohort.broker.share.counts import ShareCounts
from kohort.groups.classic.states import ClassicState
from kohort.groups.description import GroupDescription
from kohort.groups.kinds import GroupKind
from kohort.groups.share.sessions import ShareSessions
from kohort.groups.share.window import AcknowledgeType


@dataclass
class Producers:
    count: int = 0
    first_open_last_ms: int | None = None

    def __len__(self) -> int:
        return self.count


@dataclass
class Log:
    log_start_offset: int = 0
    size_bytes: int = 0
    lost_offsets: int = 0
    segments: Sequence[object] = (None,)
    loaded_producers: Producers | None = None


@dataclass
class Partition:
    index: int
    high_watermark: int = 0
    visible_bytes: int = 0
    log: Log = field(default_factory=Log)
    failure: Exception | None = None
    held_offsets: int = 0


class Partitions:
    """Some of them open, some not."""

    def __init__(self, partitions: Iterable[Partition], *, unopened: Iterable[int] = ()) -> None:
        self._partitions = list(partitions)
        self._unopened = set(unopened)

    def __len__(self) -> int:
        return len(self._partitions)

    def __getitem__(self, index: int) -> Partition:
        self._unopened.discard(index)
        return self._partitions[index]

    def peek(self, index: int) -> Partition | None:
        return None if index in self._unopened else self._partitions[index]


@dataclass
class Topic:
    name: str
    partitions: Partitions
    is_internal: bool = False


@dataclass
class Compaction:
    uncleanable_count: int = 0
    failure_count: int = 0


class FakeTopics:
    directory = Path("/")

    def __init__(self, topics: Iterable[Topic]) -> None:
        self.compaction = Compaction()
        self.by_name = {topic.name: topic for topic in topics}

    def all(self) -> Iterable[Topic]:
        return self.by_name.values()

    def get(self, name: str) -> Topic | None:
        return self.by_name.get(name)


@dataclass(frozen=True)
class Committed:
    offset: int


class Offsets:
    def __init__(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self._topics: dict[str, dict[int, Committed]] = {}
        for (topic, partition), offset in offsets.items():
            self._topics.setdefault(topic, {})[partition] = Committed(offset)
        self.count = len(offsets)

    def topics(self) -> Mapping[str, Mapping[int, Committed]]:
        return self._topics


class OtherKind(Enum):
    """A kind of groups that the broker does not have yet."""

    OTHER = "other"


@dataclass
class Group:
    group_id: str
    offsets: Offsets = field(default_factory=lambda: Offsets({}))
    state: ClassicState = ClassicState.STABLE
    member_count: int = 0
    kind: Enum = GroupKind.CLASSIC
    counts: Mapping[str, int] = field(default_factory=dict)

    def describe(self) -> GroupDescription:
        return GroupDescription(
            self.group_id,
            cast(GroupKind, self.kind),
            self.state.value,
            member_count=self.member_count,
        )

    def gauges(self) -> Mapping[str, int]:
        return self.counts


class _Groups:
    def __init__(self, groups: Iterable[Group], load_times_ms: Sequence[int] = ()) -> None:
        self._groups = groups
        self.load_times_ms = load_times_ms

    def groups(self) -> Iterable[Group]:
        return self._groups


@dataclass
class Record:
    start_ms: int


@dataclass
class TransactionalId:
    record: Record


class TransactionalIds:
    def __len__(self) -> int:
        return 5

    def open(self) -> Collection[TransactionalId]:
        return [TransactionalId(Record(7_500)), TransactionalId(Record(8_500))]


class _Transactions:
    stuck_count = 1
    late_before_ms = 1_000
    load_times_ms = (4, 2)

    def __init__(self) -> None:
        self.counts: Mapping[str, int] = {"started": 9, "abort_by_fence": 2, "evicted": 3}
        self.ids = TransactionalIds()


class _History:
    def stats(self) -> Mapping[str, int]:
        return {"records": 4, "memory_bytes": 99, "waiting": 3, "lost": 2, "dropped": 1}


class _Purgatory:
    held_bytes = 123

    def stats(self) -> Mapping[str, Mapping[str, int]]:
        return {"Fetch": {"watched": 5, "delayed": 2}, "Heartbeat": {"watched": 0, "delayed": 7}}


class _Memory:
    used_bytes = 21


class _Unsent:
    total_bytes = 22


class _Network:
    memory = _Memory()
    unsent = _Unsent()


class _Tasks:
    def __init__(self) -> None:
        self.failure_counts = {"compaction": 2, "retention": 0}

    def failing(self) -> list[str]:
        return ["compaction"]


# Collectors are declared for the broker's own classes, of which these have the parts that are read.
Topics: Final[Any] = FakeTopics
Groups: Final[Any] = _Groups
Transactions: Final[Any] = _Transactions
History: Final[Any] = _History
Purgatory: Final[Any] = _Purgatory
Network: Final[Any] = _Network
Tasks: Final[Any] = _Tasks


def values(metrics: Iterable[Metric]) -> dict[str, dict[tuple[str, ...], float]]:
    """By sample name and label values, in the labels' order."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for metric in metrics:
        for sample in metric.samples:
            series = found.setdefault(sample.name, {})
            key = tuple(sample.labels.values())
            assert key not in series, f"{sample.name}{key} twice"
            series[key] = sample.value
    return found


class SharePartitions:
    """One group that has accepted a record."""

    def __init__(self) -> None:
        self.counts = ShareCounts(1)
        self.counts.of("sharing").acknowledgements[AcknowledgeType.ACCEPT] = 1

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def groups(self) -> Iterator[tuple[str, list[Any]]]:
        yield "sharing", []

    def in_flight(self, share: object) -> int:
        raise AssertionError(share)

    lag = in_flight


class Share:
    def __init__(self) -> None:
        self.partitions = SharePartitions()
        self.sessions = ShareSessions(1)
