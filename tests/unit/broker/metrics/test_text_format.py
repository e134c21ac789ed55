"""Our writer against prometheus-client's: the same samples, whatever is in them."""

import math

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from kohort.broker.metrics.catalogue import MetricInfo
from kohort.broker.metrics.families import Family, Labels, WideFamily
from kohort.broker.metrics.tally import HistogramTally
from kohort.broker.metrics.text_format import SAMPLES_PER_PART, write

AWKWARD = ["", "plain", 'quote"', "back\\slash", "new\nline", "ünï✓", '{a="b"}', "\\n", " "]


class Registry:
    """What prometheus-client's writers take: something that collects."""

    def __init__(self, *metrics: Metric) -> None:
        self._metrics = metrics

    def collect(self) -> tuple[Metric, ...]:
        return self._metrics


def wide(kind: str, row_count: int) -> WideFamily:
    name = "kohort_wide_events_total" if kind == "counter" else "kohort_wide"
    info = MetricInfo(name, kind, ("topic",), "Wide.")
    return WideFamily(
        info, lambda: ((Labels({"topic": f"t{row}"}), row) for row in range(row_count))
    )


def metrics() -> list[Metric]:
    gauge = Family(MetricInfo("kohort_gauge", "gauge", ("a", "b"), 'Doc "of"\na \\gauge.'))
    for number, value in enumerate([0, -1, 10**15, 0.1, 1e300, 5e-324, math.inf, -math.inf]):
        gauge.add(value, str(number), "")
    for text in AWKWARD:
        gauge.add(1, text, "x")
    counter = Family(MetricInfo("kohort_counter_total", "counter", (), "A counter."))
    counter.add(7)
    unknown = Family(MetricInfo("kohort_unknown", "unknown", ("c",), "Whatever."))
    unknown.add(3, "d")
    histogram = Family(MetricInfo("kohort_seconds", "histogram", ("api",), "Durations."))
    tally = HistogramTally((0.005, 1, 2.5))
    for value in (0.001, 0.005, 2, 10):
        tally.observe(value)
    histogram.add_histogram(tally, "Fetch")
    empty = Family(MetricInfo("kohort_empty", "gauge", ("e",), "Nothing here."))
    return [gauge, counter, unknown, histogram, empty, wide("gauge", 600), wide("counter", 3)]


def text_of(*families: Metric) -> str:
    return b"".join(write(families)).decode()


def test_prometheus_text_says_what_prometheus_client_says() -> None:
    theirs = generate_latest(Registry(*metrics())).decode()
    ours = text_of(*metrics())
    parsed = list(text_string_to_metric_families(ours))
    assert parsed == list(text_string_to_metric_families(theirs))
    assert sum(len(family.samples) for family in parsed) > 600


def test_not_a_number_is_written_as_the_format_wants_it() -> None:
    family = Family(MetricInfo("kohort_gauge", "gauge", (), "Doc."))
    family.add(math.nan)
    assert "\nkohort_gauge NaN\n" in text_of(family)


def test_a_piece_is_never_longer_than_agreed() -> None:
    pieces = list(write([wide("gauge", 10_000)]))
    assert len(pieces) > 10_000 // SAMPLES_PER_PART
    assert max(piece.count(b"\n") for piece in pieces) <= SAMPLES_PER_PART + 2


def test_samples_of_a_wide_family_are_made_while_it_is_written_and_no_sooner() -> None:
    made = []

    def rows() -> "object":
        for row in range(10 * SAMPLES_PER_PART):
            made.append(row)
            yield Labels({"topic": str(row)}), row

    family = WideFamily(MetricInfo("kohort_wide", "gauge", ("topic",), "Doc."), rows)  # type: ignore[arg-type]
    pieces = write([family])
    next(pieces)
    assert 0 < len(made) <= SAMPLES_PER_PART
