"""Transactions: how many, what one costs, and what they cost those who write and read much.

A producer sends a batch, ends its transaction and begins the next one, in KIP-890's flow (TV2) and
in the one before it (TV1), as fast as it is answered, and then at a hundred transactions a second.
Batches of a thousand records go in with a transaction around each and without; what was written so
is read with and without the isolation of readers of committed records.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from benchmarks.brokers import RunningBroker
from benchmarks.generator.topics import delete_topics
from benchmarks.harness import Bench, Measured, Pair, Row, progress
from benchmarks.live import fresh_name, live, load

TITLE: Final = "Transactions over sockets, one connection for each producer"

_SECONDS: Final = 3.0
_WARM_SECONDS: Final = 4.0
_RATE: Final = 100
_RATE_SECONDS: Final = 8.0
_BATCH_RECORDS: Final = 1_000
_BATCH_PRODUCERS: Final = 5
_BATCH_SECONDS: Final = 2.0
_READ_TRANSACTIONS: Final = 300
_READ_SECONDS: Final = 4.0
_SHARE: Final = 0.95
"""What is left of the rate with transactions."""

Figures = Mapping[str, Pair]


class Part(NamedTuple):
    """Something to measure that stands alone."""

    name: str
    measure: Callable[[Bench, RunningBroker], dict[str, float]]
    rows: Callable[[str, Figures], Iterable[Row]]


def measure(bench: Bench) -> Iterable[Row]:
    parts = bench.wanted(PARTS, lambda part: part.name)
    with live(bench, "transactions") as brokers:
        for contender in () if bench.is_trial else bench.contenders:
            for part in parts:
                progress(f"  warming {contender.name}: {part.name}")
                part.measure(bench, brokers[contender.name])

        def measure_all(broker: RunningBroker) -> Measured:
            measured: dict[str, float] = {}
            for part in parts:
                progress(f"  {part.name}")
                found = part.measure(bench, broker)
                measured |= {f"{part.name} {name}": value for name, value in found.items()}
            return measured

        figures = bench.alternate(lambda contender: measure_all(brokers[contender.name]))
    for part in parts:
        yield from part.rows(part.name, figures)


# One record in each.


def _small(flow: str, producers: int) -> Part:
    def measure_it(bench: Bench, broker: RunningBroker) -> dict[str, float]:
        return _transactions(
            bench, broker, flow, producers=producers, seconds=bench.scaled(_SECONDS, 0.02)
        )

    def rows(name: str, figures: Figures) -> Iterable[Row]:
        aim = 1.5 if producers == 1 else 1.0
        yield Row(f"{name}: rate", "transactions/s", figures[f"{name} rate"], "more", aim=aim)
        yield Row(f"{name}: server CPU each", "us", figures[f"{name} cpu"], aim=1.0)
        yield Row(f"{name}: asked to try again", "per transaction", figures[f"{name} refused"])
        yield Row(f"{name}: the generator's own share", "% of a core", figures[f"{name} generator"])

    plural = "s" * (producers > 1)
    return Part(f"{flow}, {producers} producer{plural}", measure_it, rows)


def _paced(flow: str) -> Part:
    def measure_it(bench: Bench, broker: RunningBroker) -> dict[str, float]:
        seconds = bench.scaled(_RATE_SECONDS, 0.1)
        return _transactions(bench, broker, flow, producers=10, seconds=seconds, rate=_RATE)

    def rows(name: str, figures: Figures) -> Iterable[Row]:
        yield Row(f"{name}: EndTxn, p50", "ms", figures[f"{name} p50"], aim=1.0)
        yield Row(f"{name}: EndTxn, p99", "ms", figures[f"{name} p99"], aim=0.5)

    return Part(f"{flow}, {_RATE} transactions a second", measure_it, rows)


def _transactions(
    bench: Bench, broker: RunningBroker, flow: str, *, producers: int, **more: object
) -> dict[str, float]:
    topic = fresh_name("transactions")
    producers = int(bench.scaled(producers, min(producers, 2)))
    measured = load(broker, "transactions", flow=flow, name=topic, producers=producers, **more)
    delete_topics(broker.port, [topic])
    return dict(measured)


# Many records in each.


def _batches(record_bytes: int, size: str) -> Part:
    def measure_it(bench: Bench, broker: RunningBroker) -> dict[str, float]:
        found = {
            flow: _transactions(
                bench,
                broker,
                flow,
                producers=_BATCH_PRODUCERS,
                seconds=bench.scaled(_BATCH_SECONDS, 0.02),
                records=int(bench.scaled(_BATCH_RECORDS, 10)),
                record_bytes=record_bytes,
            )
            for flow in ("idempotent", "TV2")
        }
        plain, inside = found["idempotent"], found["TV2"]
        return {
            "idempotent rate": plain["megabytes"],
            "rate": inside["megabytes"],
            "share": inside["megabytes"] / plain["megabytes"],
            "cpu": inside["cpu"],
            "plain cpu": plain["cpu"],
        }

    def rows(name: str, figures: Figures) -> Iterable[Row]:
        yield Row(f"{name}: rate", "MB/s", figures[f"{name} rate"], "more", aim=1.0)
        plain = figures[f"{name} idempotent rate"]
        yield Row(f"{name}: rate of the same idempotent", "MB/s", plain, "more")
        share = figures[f"{name} share"]
        yield Row(f"{name}: share of that", "x", share, "more", limit=_SHARE)
        yield Row(f"{name}: server CPU each", "us", figures[f"{name} cpu"], aim=1.0)
        plain = figures[f"{name} plain cpu"]
        yield Row(f"{name}: server CPU of the same idempotent", "us", plain)

    return Part(f"{_BATCH_RECORDS:,} records of {size}", measure_it, rows)


# Reading.


def _read(what: str, abort_every: int) -> Part:
    def measure_it(bench: Bench, broker: RunningBroker) -> dict[str, float]:
        topic = fresh_name("read")
        count = int(bench.scaled(_READ_TRANSACTIONS, 4))
        load(
            broker,
            "filled with transactions",
            topic=topic,
            transactions=count,
            records=int(bench.scaled(_BATCH_RECORDS, 10)),
            record_bytes=100,
            abort_every=abort_every,
        )
        found = load(broker, "read", topic=topic, seconds=bench.scaled(_READ_SECONDS, 0.02))
        delete_topics(broker.port, [topic])
        if found["aborted"] != (count // abort_every if abort_every else 0):
            raise RuntimeError(f"{found['aborted']} transactions were told as aborted")
        return {
            **found,
            "share": found["rate"] / found["plain rate"],
            "slower": found["p99"] / found["plain p99"],
        }

    def rows(name: str, figures: Figures) -> Iterable[Row]:
        yield Row(f"{name}: rate", "MB/s", figures[f"{name} rate"], "more", aim=1.0)
        plain = figures[f"{name} plain rate"]
        yield Row(f"{name}: rate of read_uncommitted", "MB/s", plain, "more")
        share = figures[f"{name} share"]
        yield Row(f"{name}: share of read_uncommitted", "x", share, "more", limit=_SHARE)
        yield Row(f"{name}: server CPU", "ms per MB", figures[f"{name} cpu"], aim=1.0)
        yield Row(f"{name}: an answer, p99", "ms", figures[f"{name} p99"])
        slower = figures[f"{name} slower"]
        yield Row(f"{name}: of that of read_uncommitted", "x", slower, limit=2.0)

    return Part(f"read_committed, {what}", measure_it, rows)


PARTS: Final = (
    *(_small(flow, producers) for flow in ("TV2", "TV1") for producers in (1, 10, 100)),
    *(_small(flow, 10) for flow in ("TV2 with offsets", "TV1 with offsets")),
    _paced("TV2"),
    _paced("TV1"),
    _batches(1_000, "1 kB"),
    _batches(100, "100 B"),
    _read("nothing aborted", 0),
    _read("every second aborted", 2),
)
"""The rows of the table, in order."""
