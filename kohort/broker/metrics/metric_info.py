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


class Section(NamedTuple):
    """Metrics that are documented together."""

    title: str
    doc: str
    metrics: tuple[MetricInfo, ...]


def counter(name: str, doc: str, *labels: str) -> MetricInfo:
    assert name.endswith("_total"), name
    return MetricInfo(name, "counter", labels, doc)


def gauge(name: str, doc: str, *labels: str) -> MetricInfo:
    return MetricInfo(name, "gauge", labels, doc)


def histogram(name: str, doc: str, *labels: str) -> MetricInfo:
    return MetricInfo(name, "histogram", labels, doc)


def unknown(name: str, doc: str, *labels: str) -> MetricInfo:
    """Describe a count under a name of Kafka's without the suffix _total that a counter needs."""
    return MetricInfo(name, "unknown", labels, doc)
