"""Generates docs/metrics.md from the catalogue; `make docs` writes it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kohort.broker.metrics.catalogue import SECTIONS, MetricInfo, Section
from kohort.broker.metrics.group_counts import OTHER
from kohort.watch.catalogue import SECTION as WATCH

PATH: Final = Path("docs/metrics.md")

_HEAD: Final = f"""\
<!-- Made from broker/metrics/catalogue.txt and watch/catalogue.py by `make docs`; edit those. -->

# Metrics

The broker answers `GET /metrics` in Prometheus' text format on `kohort.metrics.port` (9308, like
kafka_exporter's) of `kohort.metrics.host` (`localhost`). Before you open the port to other
machines, see [securing-it.md](securing-it.md#the-http-ports).

If the port is not set and 9308 is taken, the broker uses the next free one and logs it. Prometheus,
probes and `kohort groups why` then still find the other broker on 9308: set the port if several
brokers share an address.

| Path | Answer |
|---|---|
| `/metrics` | the metrics below |
| `/-/healthy` | 200 while the process works; names periodic work that fails |
| `/-/ready` | 200 while the broker serves clients, otherwise 503 and the reason |

While the broker starts, `/metrics` has only the progress of the start and `process_*`, without
authentication, `/-/healthy` answers 200, and all other pages, the console's too, answer 503 with
that progress.

So that existing dashboards and alerts work, metrics of topics and groups have kafka_exporter's
names (Grafana dashboard 7589 uses them), others those that Prometheus' JMX exporter gives to Apache
Kafka's metrics; the rest begin with `kohort_`. Labels are in braces. Metrics
whose names end in `_total` are counters, the others gauges unless marked.

## Limits

Topics and groups beyond the limits `kohort.metrics.*.max`
([configuration.md](configuration.md#settings-that-kafka-does-not-have)) have no series of their
own; they are summed under the label value `{OTHER}`, and `kohort_metrics_folded` counts them. The
oldest get series first, and keep them.

A scrape reads the broker's state in slices of a millisecond, so its values are not from one moment,
except for the two from which lag is computed. The first scrape opens partitions that were not used
since the start, which takes a few tenths of a millisecond and 5 kB each: with 10,000 of them, it
may exceed Prometheus' timeout.
"""


def document() -> str:
    """Return the whole text of docs/metrics.md."""
    sections = ("\n".join(_section(section)) for section in (*SECTIONS, WATCH))
    return "\n".join([_HEAD, *sections])


def _section(section: Section) -> Iterator[str]:
    yield f"## {section.title}\n"
    yield f"{section.doc}\n"
    yield "| Metric | Meaning |\n|---|---|"
    for metric in section.metrics:
        labels = f" {{{', '.join(metric.labels)}}}" if metric.labels else ""
        yield f"| `{metric.name}`{labels} | {metric.doc}{_kind(metric)} |"
    yield ""


def _kind(metric: MetricInfo) -> str:
    """Return the type of a metric if its name does not show it."""
    usual = "counter" if metric.name.endswith("_total") else "gauge"
    kind = "untyped" if metric.kind == "unknown" else metric.kind
    return "" if kind == usual else f" *{kind.capitalize()}.*"
