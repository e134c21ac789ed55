"""How long a broker takes from its start to its first answer, and how much memory it then holds.

The directory is the same in all runs, and each broker was started once before: this is a start over
existing (but empty) data, with Python's bytecode written and the files in the page cache, as on a
machine that restarts a service.
"""

import time
import urllib.request
from collections.abc import Iterable
from functools import partial
from typing import Final

from benchmarks.brokers import Contender, Kohort
from benchmarks.harness import Bench, Measured, Row, progress

TITLE: Final = "Start and memory"

_SETTLE_S: Final = 3.0
"""Until what runs once after the start is over."""


def measure(bench: Bench) -> Iterable[Row]:
    for contender in bench.contenders:
        progress(f"  first start of {contender.name}")
        with contender.start(bench.directory / contender.name) as broker:
            broker.wait_serving()
    figures = bench.alternate(partial(_measure_start, bench))
    yield Row("first answer (ApiVersions)", "ms", figures["first answer"], aim=0.1, limit=400)
    yield Row("first answer of a broker that serves", "ms", figures["serving"], aim=0.1)
    yield Row("processor time until then", "ms", figures["cpu"])
    yield Row("memory, idle", "MiB", figures["idle"], aim=0.06, limit=60)
    yield Row("memory after a scrape of /metrics", "MiB", figures["scraped"])


def _measure_start(bench: Bench, contender: Contender) -> Measured:
    with contender.start(bench.directory / contender.name) as broker:
        broker.wait_first_answer()
        first_answer_s = time.perf_counter() - broker.started_s
        broker.wait_serving()
        serving_s = time.perf_counter() - broker.started_s
        cpu_s = broker.cpu_s()
        time.sleep(_SETTLE_S)
        measured = {
            "first answer": first_answer_s * 1e3,
            "serving": serving_s * 1e3,
            "cpu": cpu_s * 1e3,
            "idle": broker.resident_mib(),
        }
        if isinstance(contender, Kohort):
            _scrape(contender.metrics_port)
            measured["scraped"] = broker.resident_mib()
    return measured


def _scrape(port: int) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        if b"\nkafka_brokers 1\n" not in answer.read():
            raise RuntimeError("a scrape without kafka_brokers")
