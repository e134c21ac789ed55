"""Writes metrics in Prometheus' text format and in OpenMetrics, in parts.

prometheus-client has its own writers; they take 17 to 28 microseconds per sample and cannot pause,
so a scrape of 10,000 partitions would block all clients for two seconds. These take one
microsecond and yield a part after every `SAMPLES_PER_PART` lines. Both read the same `Metric`
objects, and the tests compare their output.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from prometheus_client.metrics_core import Metric

from kohort.broker.metrics.families import Labels, label_text

SAMPLES_PER_PART: Final = 250

NO_LABELS: Final[Mapping[str, str]] = MappingProxyType({})


class TextFormat(Enum):
    """The formats, with their content types."""

    PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def write(
    metrics: Iterable[Metric], text_format: TextFormat, common: Mapping[str, str] = NO_LABELS
) -> Iterator[bytes]:
    """Yield the exposition in parts; each takes a quarter of a millisecond.

    Args:
        metrics: what to write.
        text_format: the format.
        common: labels of all samples, besides their own.
    """
    of_all = label_text(common)
    lines: list[str] = []
    for metric in metrics:
        lines.append(_head(metric, text_format))
        for sample in metric.samples:
            labels = sample.labels
            text = labels.text if labels.__class__ is Labels else label_text(labels)
            if of_all:
                text = f"{of_all[:-1]},{text[1:]}" if text else of_all
            value = sample.value
            number = value if isinstance(value, int) else _number(value)
            lines.append(f"{sample.name}{text} {number}\n")
            if len(lines) >= SAMPLES_PER_PART:
                yield "".join(lines).encode()
                lines.clear()
    if text_format is TextFormat.OPENMETRICS:
        lines.append("# EOF\n")
    yield "".join(lines).encode()


def _head(metric: Metric, text_format: TextFormat) -> str:
    name, kind = metric.name, metric.type
    doc = metric.documentation.replace("\\", r"\\").replace("\n", r"\n")
    if text_format is TextFormat.OPENMETRICS:
        doc = doc.replace('"', r"\"")
    elif kind == "counter":
        name = f"{name}_total"
    elif kind == "info":
        name, kind = f"{name}_info", "gauge"
    elif kind == "unknown":
        kind = "untyped"
    return f"# HELP {name} {doc}\n# TYPE {name} {kind}\n"


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(float(value))
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"
