"""Records in and out over sockets, by librdkafka, and what the load leaves in the brokers' memory.

One partition; acks=all, idempotent, five requests in flight, batches of up to 1 MB. What was
produced is fetched from its beginning right afterwards, as a consumer that comes late does.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from benchmarks.brokers import RunningBroker
from benchmarks.generator.topics import delete_topics
from benchmarks.harness import Bench, Measured, Row, progress
from benchmarks.live import fresh_name, live, load

TITLE: Final = "Produce and fetch by librdkafka, one partition, acks=all, idempotent, 5 in flight"


class Load(NamedTuple):
    """Records of one size, and how the two brokers should compare."""

    record_bytes: int
    megabytes: int
    rate_aim: float
    cpu_aim: float

    @property
    def name(self) -> str:
        size = self.record_bytes
        return f"{size // 1_000} kB" if size >= 1_000 else f"{size} B"


LOADS: Final = (Load(1_000, 400, 1.5, 0.5), Load(100, 100, 1.0, 0.7))


def measure(bench: Bench) -> Iterable[Row]:
    with live(bench, "throughput") as brokers:
        for contender in () if bench.is_trial else bench.contenders:
            progress(f"  warming {contender.name}")
            _measure(bench, brokers[contender.name], 0.5)
        figures = bench.alternate(
            lambda contender: {
                **_measure(bench, brokers[contender.name], 1.0),
                "memory": brokers[contender.name].resident_mib(),
            }
        )
    for one in bench.wanted(LOADS, lambda load: load.name):
        size = one.name
        yield Row(f"produce {size}", "MB/s", figures[f"produce {size} rate"], "more", one.rate_aim)
        cpu = figures[f"produce {size} cpu"]
        yield Row(f"produce {size}: server CPU", "ms per MB", cpu, aim=one.cpu_aim)
        busy = figures[f"produce {size} generator"]
        yield Row(f"produce {size}: the generator's own share", "% of a core", busy)
        yield Row(f"fetch {size}", "MB/s", figures[f"fetch {size} rate"], "more", aim=1.0)
        cpu = figures[f"fetch {size} cpu"]
        yield Row(f"fetch {size}: server CPU", "ms per MB", cpu, aim=1.0)
        busy = figures[f"fetch {size} generator"]
        yield Row(f"fetch {size}: the generator's own share", "% of a core", busy)
    yield Row("memory after the load", "MiB", figures["memory"], aim=0.1)


def _measure(bench: Bench, broker: RunningBroker, share: float) -> Measured:
    measured: dict[str, float] = {}
    for one in bench.wanted(LOADS, lambda load: load.name):
        topic, size = fresh_name("records"), one.record_bytes
        records = int(bench.scaled(one.megabytes, 5.0) * share * 1e6 / size)
        produced = load(broker, "produce", topic=topic, record_bytes=size, records=records)
        fetched = load(broker, "fetch", topic=topic, record_bytes=size)
        delete_topics(broker.port, [topic])
        measured |= {f"produce {one.name} {name}": value for name, value in produced.items()}
        measured |= {f"fetch {one.name} {name}": value for name, value in fetched.items()}
    return measured
