"""Memory of ten thousand connections that have said hello and are silent since, and of members;
of fewer connections where a process may not have as many descriptors.

Each on a broker that has just been started: one that had as many before has the memory already.
"""

import resource
from collections.abc import Iterable
from typing import Final

from benchmarks.brokers import Contender
from benchmarks.harness import Bench, Measured, Row
from benchmarks.live import fresh_name, load, start
from kohort.broker.network.server.listening import connections_within
from kohort.broker.storage.filesystem import OPEN_FILES_MAX

TITLE: Final = "Memory of connections and members"

_CONNECTIONS: Final = 10_000
_SPARE: Final = 200
"""Connections of the broker's limit that are left for those that warm it up."""
_MEMBERS: Final = 5_000
_SETTLE_S: Final = 2.0
LIMIT_KIB: Final = 20


def measure(bench: Bench) -> Iterable[Row]:
    connections = int(min(bench.scaled(_CONNECTIONS), _possible()))
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


def _possible() -> int:
    """Return how many connections a broker accepts that may have as many descriptors as we."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections_within(hard, OPEN_FILES_MAX) - _SPARE
