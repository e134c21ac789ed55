"""prometheus-client's metric families, with the catalogue's names and the broker's values."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, TypeAlias, cast

from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from kohort.broker.metrics.catalogue import METRICS, MetricInfo
from kohort.broker.metrics.tally import HistogramTally

TOPICS: Final = "topics"
PARTITIONS: Final = "partitions"
GROUPS: Final = "groups"

COORDINATOR: Final = "kafka_server_group_coordinator_metrics"
"""Prefix of the names of Kafka's group coordinator metrics."""


class SeriesBudget:
    """How many more series a scrape may contain; the oldest topics and groups get theirs first."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def take(self, count: int) -> bool:
        """Allocate `count` series if that many are left, otherwise none; return whether it did."""
        if count > self._left:
            return False
        self._left -= count
        return True


Rows = Callable[[], "Iterable[tuple[Labels, float]]"]
"""Yields the (labels, value) pair of each sample."""


class Labels(dict[str, str]):
    """Labels with their text form, which is made once for all samples with these labels."""

    __slots__ = ("text",)

    def __init__(self, labels: Mapping[str, str]) -> None:
        super().__init__(labels)
        self.text = label_text(labels)


AnyMetric: TypeAlias = str | MetricInfo
"""The name of a metric in the catalogue, or the description of a metric outside it."""


class Family(Metric):
    def __init__(self, metric: AnyMetric) -> None:
        self._info = info = METRICS[metric] if isinstance(metric, str) else metric
        super().__init__(family_name(info.name), info.doc, info.kind)

    def add(self, value: float, *labels: str) -> None:
        """Add a sample; `labels` are the label values, in the order of the catalogue."""
        self.samples.append(Sample(self._info.name, self._labelled(labels), value))

    def add_histogram(self, tally: HistogramTally, *labels: str) -> None:
        name, labelled = self.name, self._labelled(labels)
        cumulative = list(accumulate(tally.counts))
        bounds = [*map(str, map(float, tally.bounds)), "+Inf"]
        for bound, count in zip(bounds, cumulative, strict=True):
            self.samples.append(Sample(f"{name}_bucket", {**labelled, "le": bound}, count))
        self.samples.append(Sample(f"{name}_count", labelled, cumulative[-1]))
        self.samples.append(Sample(f"{name}_sum", labelled, tally.total))

    def _labelled(self, labels: tuple[str, ...]) -> dict[str, str]:
        return dict(zip(self._info.labels, labels, strict=True))


def single(metric: AnyMetric, value: float) -> Family:
    """Make a metric without labels."""
    family = Family(metric)
    family.add(value)
    return family


def counted(metric: AnyMetric, counts: Mapping[Any, float]) -> Family:
    """Make a metric with a sample for each label value, or tuple of label values, in `counts`."""
    family = Family(metric)
    for labels, count in counts.items():
        family.add(count, *(labels if isinstance(labels, tuple) else (str(labels),)))
    return family


def load_times(coordinator: str, times_ms: Sequence[int]) -> Iterator[Family]:
    """Make the metrics of a coordinator's load times, one time for each partition that it has
    loaded; `coordinator` is the prefix of the metrics' names.
    """
    mean_ms = sum(times_ms) / len(times_ms) if times_ms else 0
    yield single(f"{coordinator}_partition_load_time_max", max(times_ms, default=0))
    yield single(f"{coordinator}_partition_load_time_avg", mean_ms)


class WideFamily(Metric):
    """A metric with so many samples that each is made only when it is written."""

    def __init__(self, metric: AnyMetric, rows: Rows) -> None:
        info = METRICS[metric] if isinstance(metric, str) else metric
        super().__init__(family_name(info.name), info.doc, info.kind)
        # Not a list, but code that writes metrics only iterates over the samples.
        self.samples = cast(list[Sample], _Samples(info.name, rows))


def rows(samples: Iterable[Any], value_of: Callable[[Any], float]) -> Rows:
    """Return a function that yields each sample's `labels` and the result of `value_of`."""
    return lambda: ((sample.labels, value_of(sample)) for sample in samples)


class _Samples:
    def __init__(self, name: str, rows: Rows) -> None:
        self._name = name
        self._rows = rows

    def __iter__(self) -> Iterator[Sample]:
        name = self._name
        for labels, value in self._rows():
            yield Sample(name, labels, value)


def family_name(name: str) -> str:
    """Return the name that `Metric` objects have: for a counter, the name without _total."""
    return name.removesuffix("_total")


def label_text(labels: Mapping[str, str]) -> str:
    """Format labels for both text formats, with the braces; empty for no labels."""
    if not labels:
        return ""
    pairs = ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())
    return f"{{{pairs}}}"


def _escape(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
    return value
