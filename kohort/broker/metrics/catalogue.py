"""Every metric that Kohort defines: name, labels and meaning, read from catalogue.txt.

docs/metrics.md is derived from it. The metrics of prometheus-client about the process (`process_*`,
`python_*`) are not listed.

There are three vocabularies, so that existing dashboards and alerts keep working: kafka_exporter's
names for topics and groups, the JMX exporter's names for Kafka's own meters, and Kohort's
(`kohort_*`) where neither has a name.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

_FILE: Final = Path(__file__).with_name("catalogue.txt")
_ENTRY: Final = re.compile(r"(?:(\w+) )?(\w+)(?:\{([\w,]+)\})?: (.*)")


class MetricInfo(NamedTuple):
    name: str
    """Name in a scrape; a counter's ends with _total."""
    kind: str
    """counter, gauge, histogram, or unknown: a count that Kafka names without _total."""
    labels: tuple[str, ...]
    doc: str


class Section(NamedTuple):
    """Metrics that are documented together, in this order."""

    title: str
    doc: str
    metrics: list[MetricInfo]


def metric(entry: str) -> MetricInfo:
    """Parse ``name{labels}: meaning``, preceded by the type unless the name shows it."""
    match = _ENTRY.fullmatch(entry)
    assert match is not None, entry
    kind, name, labels, doc = match.groups()
    usual = "counter" if name.endswith("_total") else "gauge"
    return MetricInfo(name, kind or usual, tuple(labels.split(",")) if labels else (), doc)


def _sections() -> tuple[Section, ...]:
    sections: list[Section] = []
    # Indented lines continue an entry.
    for paragraph in re.split(r"\n+(?=\S)", _FILE.read_text(encoding="utf-8")):
        entry = " ".join(paragraph.split())
        if entry.startswith("["):
            title, _, doc = entry[1:].partition("]: ")
            sections.append(Section(title, doc, []))
        elif not entry.startswith("#"):
            sections[-1].metrics.append(metric(entry))
    return tuple(sections)


SECTIONS: Final = _sections()

METRICS: Final[Mapping[str, MetricInfo]] = {
    metric.name: metric for section in SECTIONS for metric in section.metrics
}
