"""Memory of ten thousand connections that have said hello and are silent since, and of members.

Each on a broker that has just been started: one that had as many before has the memory already.
"""

from collections.abc import Iterable
from typing import Final

from benchmarks.brokers import Contender
from benchmarks.harness import Bench, Measured, Row
from benchmarks.live import fresh_name, load, start

TITLE: Final = "Memory of connections and members"

_CONNECTIONS: Final = 10_000
_MEMBERS: Final = 5_000
_SETTLE_S: Final = 2.0
LIMIT_KIB: Final = 20


def measure(bench: Bench) -> Iterable[Row]:
    connections = int(bench.scaled(_CONNECTIONS))
    members = int(bench.scaled(_MEMBERS))
    settle_s = bench.scaled(_SETTLE_S, 0.01)

    def measure_one(contender: Contender) -> Measured:
        with start(bench, contender, "connections") as broker:
            broker.wait_serving()
            found = load(broker, "idle", connections=connections, settle_s=settle_s)
        with start(bench, contender, "connections") as broker:
            broker.wait_serving()
            names = [fresh_name("memory") for _ in range(2)]
            return {**found, **load(broker, "members' memory", group_ids=names, size=members)}

    figures = bench.alternate(measure_one)
    memory = figures["memory"]
    yield Row(f"one of {connections:,} idle connections", "KiB", memory, limit=LIMIT_KIB)
    yield Row("until it is there and answered", "ms", figures["connect"])
    yield Row(f"one of {members:,} members of a group", "KiB", figures["member"])
