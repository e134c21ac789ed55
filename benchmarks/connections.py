"""Ten thousand connections that have said hello and are silent since."""

from collections.abc import Iterable
from typing import Final

from benchmarks.brokers import Contender
from benchmarks.harness import Bench, Measured, Row
from benchmarks.live import load, start

TITLE: Final = "10,000 idle connections"

_CONNECTIONS: Final = 10_000
_SETTLE_S: Final = 2.0
LIMIT_KIB: Final = 20


def measure(bench: Bench) -> Iterable[Row]:
    connections = int(bench.scaled(_CONNECTIONS))
    settle_s = bench.scaled(_SETTLE_S, 0.01)

    def measure_one(contender: Contender) -> Measured:
        # A new broker each time: one that had as many before would have the memory already.
        with start(bench, contender, "connections") as broker:
            broker.wait_serving()
            return load(broker, "idle", connections=connections, settle_s=settle_s)

    figures = bench.alternate(measure_one)
    yield Row("memory of each", "KiB", figures["memory"], limit=LIMIT_KIB)
    yield Row("until it is there and answered", "ms each", figures["connect"])
