"""From the moment when a record is due until a consumer has it, at a thousand records a second."""

from collections.abc import Iterable
from typing import Final

from benchmarks.brokers import RunningBroker
from benchmarks.harness import Bench, Measured, Row, progress
from benchmarks.live import fresh_name, live, load

TITLE: Final = "End to end by librdkafka, 1,000 records of 100 B a second, acks=all, idempotent"

_RATE: Final = 1_000
_SECONDS: Final = 6.0


def measure(bench: Bench) -> Iterable[Row]:
    with live(bench, "latency") as brokers:
        for contender in () if bench.is_trial else bench.contenders:
            progress(f"  warming {contender.name}")
            _measure(bench, brokers[contender.name])
        figures = bench.alternate(lambda contender: _measure(bench, brokers[contender.name]))
    yield Row("end to end, p50", "ms", figures["p50"], aim=1.0)
    yield Row("end to end, p99", "ms", figures["p99"], aim=0.5)
    yield Row("server CPU meanwhile", "% of a core", figures["cpu"])


def _measure(bench: Bench, broker: RunningBroker) -> Measured:
    seconds = bench.scaled(_SECONDS, 0.1)
    topic = fresh_name("latency")
    return load(broker, "end to end", topic=topic, rate=_RATE, seconds=seconds)
