"""The types of the catalogue's entries."""

from typing import Final, Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram", "unknown"]

OTHER: Final = "(other)"
"""Label value under which everything beyond a limit is summed. No topic can have this name."""


class MetricInfo(NamedTuple):
    name: str
    """Name in a scrape; a counter's ends with _total."""
    kind: Kind
    labels: tuple[str, ...]
    doc: str


class Section:
    """Metrics that are documented together, in the order in which they are declared."""

    def __init__(self, title: str, doc: str) -> None:
        self.title = title
        self.doc = doc
        self.metrics: list[MetricInfo] = []

    def counter(self, name: str, doc: str, *labels: str) -> MetricInfo:
        assert name.endswith("_total"), name
        return self._add(MetricInfo(name, "counter", labels, doc))

    def gauge(self, name: str, doc: str, *labels: str) -> MetricInfo:
        return self._add(MetricInfo(name, "gauge", labels, doc))

    def histogram(self, name: str, doc: str, *labels: str) -> MetricInfo:
        return self._add(MetricInfo(name, "histogram", labels, doc))

    def unknown(self, name: str, doc: str, *labels: str) -> MetricInfo:
        """Declare a count under a name of Kafka without the suffix _total that counters need."""
        return self._add(MetricInfo(name, "unknown", labels, doc))

    def _add(self, metric: MetricInfo) -> MetricInfo:
        self.metrics.append(metric)
        return metric
