"""Parts of a broker as the collectors see them, with nothing behind them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.metrics_core import Metric

from broker.core.group.states import GroupState


@dataclass
class Log:
    log_start_offset: int = 0
    size_bytes: int = 0
    segment_count: int = 1


@dataclass
class Partition:
    index: int
    high_watermark: int = 0
    visible_bytes: int = 0
    log: Log = field(default_factory=Log)
    failure: Exception | None = None


@dataclass
class Topic:
    name: str
    partitions: list[Partition]


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


@dataclass
class Group:
    group_id: str
    offsets: Offsets = field(default_factory=lambda: Offsets({}))
    state: GroupState = GroupState.STABLE
    roster: list[str] = field(default_factory=list)


class Purgatory:
    held_bytes = 123

    def stats(self) -> Mapping[str, Mapping[str, int]]:
        return {"Fetch": {"watched": 5, "delayed": 2}, "Heartbeat": {"watched": 0, "delayed": 7}}


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
