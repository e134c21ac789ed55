"""Makes docs/metrics.md out of the catalogue; `make docs` writes it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kohort.broker.metrics.catalogue import SECTIONS
from kohort.broker.metrics.metric_info import OTHER, MetricInfo, Section

PATH: Final = Path("docs/metrics.md")

_HEAD: Final = f"""\
<!-- Made from broker/metrics/catalogue.py by `make docs`; edit that. -->

# Metrics

The broker answers `GET /metrics` on a port of its own, in Prometheus' text format or, for those who
ask for it (`Accept: application/openmetrics-text`), in OpenMetrics. The port is
`kohort.metrics.port` (9308, as kafka_exporter's; -1 turns it off) on `kohort.metrics.host`
(`localhost`: there is no authentication, so open it to other machines only where everybody may
see the names of topics and groups).

Where the port is not set and 9308 is taken, the first free one of the 19 above it is used, so that
a second broker on one machine starts; a line in its log says which. What looks at 9308 (Prometheus,
probes, `kohort groups why`) then finds the other broker: set the port wherever several brokers
share an address. A port that is set is used, or the broker does not start.

| Path | Answer |
|---|---|
| `/metrics` | what follows below |
| `/-/healthy` | 200 as long as the process does its work |
| `/-/ready` | 200 while the broker serves clients, 503 and the reason while it does not |

Three vocabularies are spoken, so that dashboards and alerts which exist keep working: the names of
kafka_exporter for topics and groups (Grafana's dashboard 7589 reads them), the names that
Prometheus' JMX exporter gives to meters of Apache Kafka, and `kohort_` for the rest.

## Limits

The number of series is bounded. Topics and groups beyond the limits below have no series of their
own; they are summed under the label value `{OTHER}`, and `kohort_metrics_folded` tells how many
they are. Those with series keep them: the oldest come first.

| Setting | Default | Bounds |
|---|---|---|
| `kohort.metrics.partitions.max` | 10,000 | partitions with series of their own, by whole topics |
| `kohort.metrics.groups.max` | 1,000 | groups with series of their own |
| `kohort.metrics.group.partitions.max` | 10,000 | committed offsets with series, by whole groups |

A scrape looks at the broker in slices of a millisecond, between which clients are served. The
values of one scrape are therefore not of one moment; lag is computed from two numbers that are.
Partitions that were not used since the start are opened by the first scrape, a few tenths of a
millisecond and 5 kB each: with 10,000 of them it may take longer than Prometheus waits, once.
"""

_CLIENT: Final = """\
## Added by prometheus-client

| Metric | Meaning |
|---|---|
| `process_cpu_seconds_total` | CPU time used, user and system. |
| `process_max_fds` | Files and sockets that may be open. |
| `process_open_fds` | Files and sockets that are open. |
| `process_resident_memory_bytes` | Memory in use. |
| `process_start_time_seconds` | When the process started, in seconds since 1970. |
| `process_virtual_memory_bytes` | Address space in use. |
| `python_gc_collections_total` | Garbage collections, by `generation`. |
| `python_gc_objects_collected_total` | Objects found unreachable, by `generation`. |
| `python_gc_objects_uncollectable_total` | Objects that could not be freed, by `generation`. |
| `python_info` | 1; the labels say which Python runs. |
"""


def document() -> str:
    """The whole text of docs/metrics.md."""
    parts = [_HEAD, *("\n".join(_section(section)) for section in SECTIONS), _CLIENT]
    return "\n".join(parts)


def _section(section: Section) -> Iterator[str]:
    yield f"## {section.title}\n"
    yield f"{section.doc}\n"
    yield "| Metric | Type | Labels | Meaning |"
    yield "|---|---|---|---|"
    for metric in section.metrics:
        yield f"| `{metric.name}` | {metric.kind} | {_labels(metric)} | {metric.doc} |"
    yield ""


def _labels(metric: MetricInfo) -> str:
    return ", ".join(f"`{label}`" for label in metric.labels)
