"""From the end of a rebalance to what is found of it, by the job that goes on.

`kohort pipeline rebalances`, as its users run it, in a process of its own and with the interval
that it has without a word, beside a broker and into a lake that has the history of other groups. A
group of real consumers rebalances as one of them comes and goes, at moments that are no multiple of
the interval. An event is over when the broker's history says so; it is found when the commit is
there that ends the renewal of all findings. Kafka has nothing of the kind.
"""

from __future__ import annotations

import json
import random
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet

from benchmarks.analysis import JARS, history, run
from benchmarks.brokers import Kohort
from benchmarks.harness import Bench, Measured, Row, progress
from benchmarks.machine import ROOT
from benchmarks.use import Use

TITLE: Final = "From a rebalance to what is found of it, in continuous mode with Spark"

_GROUPS: Final = 200
"""Whose hundred rebalances each are in the lake already."""
_EVENTS: Final = 20
_PAUSE_S: Final = (2.0, 18.0)
"""Between two of them."""
_LIMIT_S: Final = 20.0
_PATIENCE_S: Final = 300.0
_GROUP: Final = "followed"
_TOPIC: Final = "orders"
_HISTORY: Final = "__rebalance_history"


def measure(bench: Bench) -> Iterable[Row]:
    if not JARS.is_dir():
        progress("")
        return
    figures = bench.measure_ours(lambda: _measure(bench))
    yield Row("from event to finding, in the middle", "s", figures["middle"])
    yield Row("the longest", "s", figures["longest"], limit=_LIMIT_S)
    yield Row("processor time of a batch with news", "s", figures["batch"])
    yield Row("memory of driver and executor at most", "MiB", figures["memory"])


def _measure(bench: Bench) -> Measured:
    directory = bench.directory / f"following-{time.monotonic_ns()}"
    directory.mkdir(parents=True)
    lake, events = directory / "lake", round(bench.scaled(_EVENTS, 3))
    _fill(directory, lake, groups=round(bench.scaled(_GROUPS, 2)))
    overrides = {"group.initial.rebalance.delay.ms": "100"}
    with Kohort().start(directory / "broker", overrides) as broker:
        broker.wait_serving()
        bootstrap = f"127.0.0.1:{broker.port}"
        _create(bootstrap)
        with _consuming(bootstrap), _following(bootstrap, lake, directory / "job.log") as job:
            # What it was started with, and the start itself, is no batch like others.
            _wait(lambda: bool(_found(lake)), job)
            use = Use(job.pid)
            time.sleep(1)
            before, batches, chance = use.processor_s, len(_commits(lake)), random.Random(3)
            first = max(_found(lake)) + 1
            _come_and_go(bootstrap, events, chance)
            over = _over(bootstrap, first)
            _wait(lambda: max(_found(lake)) >= max(over), job)
            time.sleep(1)
            processor_s = (use.processor_s - before) / (len(_commits(lake)) - batches)
    if len(over) < events:
        raise RuntimeError(f"{len(over)} rebalances in the place of {events}")
    found = _found(lake)
    took = [
        min(at for last, at in found.items() if last >= sequence) - ended
        for sequence, ended in over.items()
    ]
    progress(f"{len(took)} events: {', '.join(f'{one:.1f}' for one in took)} s")
    return {
        "middle": statistics.median(took),
        "longest": max(took),
        "batch": processor_s,
        "memory": use.mib,
    }


def _fill(directory: Path, lake: Path, *, groups: int) -> None:
    path = directory / "history.jsonl"
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for event in history(groups):
            file.write(json.dumps(event) + "\n")
            count += 1
    run(path, lake, count, groups)


@contextmanager
def _following(bootstrap: str, lake: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "kohort.cli", "pipeline", "rebalances", "--lake", str(lake)]
    command += ["--bootstrap-server", bootstrap, "--jars", str(JARS)]
    command += ["--conf", "spark.ui.enabled=false"]
    with log.open("wb") as told:
        job = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=told, stderr=told
        )
    try:
        yield job
        job.send_signal(signal.SIGTERM)
        if job.wait(_PATIENCE_S):
            raise RuntimeError(f"it did not end as it should:\n{log.read_text()[-2000:]}")
    finally:
        job.kill()
        job.wait()


def _create(bootstrap: str) -> None:
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - slow to import.
    from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415 - as above.

    topic = NewTopic(_TOPIC, num_partitions=4, replication_factor=1)
    admin = AdminClient({"bootstrap.servers": bootstrap})  # Without it, its answers end.
    admin.create_topics([topic])[_TOPIC].result(30)


def _consumer(bootstrap: str) -> Any:  # noqa: ANN401 - of a library that is imported late.
    from confluent_kafka import Consumer  # noqa: PLC0415 - slow to import.

    settings = {"group.id": _GROUP, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 300}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.subscribe([_TOPIC])
    return consumer


@contextmanager
def _consuming(bootstrap: str) -> Iterator[None]:
    """A consumer that stays."""
    over = threading.Event()

    def poll() -> None:
        consumer = _consumer(bootstrap)
        while not over.is_set():
            consumer.poll(0.1)
        consumer.close()

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


def _come_and_go(bootstrap: str, events: int, chance: random.Random) -> None:
    """Another one comes, and goes, until there were so many rebalances."""
    consumer = None
    for _ in range(events):
        if consumer is None:
            consumer = _consumer(bootstrap)
            deadline_s = time.monotonic() + _PATIENCE_S
            while not consumer.assignment():
                consumer.poll(0.1)
                if time.monotonic() > deadline_s:
                    raise RuntimeError("a consumer was given nothing")
        else:
            consumer.close()
            consumer = None
        until_s = time.monotonic() + chance.uniform(*_PAUSE_S)
        while (left_s := until_s - time.monotonic()) > 0:
            if consumer is None:
                time.sleep(left_s)
            else:
                consumer.poll(left_s)
    if consumer is not None:
        consumer.close()


def _over(bootstrap: str, first: int) -> dict[int, float]:
    """When the rebalances from this number on ended, by their numbers, as the broker tells it."""
    from confluent_kafka import Consumer, TopicPartition  # noqa: PLC0415 - slow to import.

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    over = {}
    try:
        for partition in consumer.list_topics(_HISTORY, 30).topics[_HISTORY].partitions:
            low, high = consumer.get_watermark_offsets(TopicPartition(_HISTORY, partition), 30)
            consumer.assign([TopicPartition(_HISTORY, partition, low)])
            at = low
            while at < high:
                for message in consumer.consume(1_000, 1.0):
                    at = (message.offset() or 0) + 1
                    event = json.loads(message.value() or b"{}")
                    is_over = event["kind"] == "rebalance" and event["outcome"] != "running"
                    if event["group"] == _GROUP and is_over and event["sequence"] >= first:
                        ended_ms = event["started_at_ms"] + event["timeline"]["finished_ms"]
                        over[event["sequence"]] = ended_ms / 1000
    finally:
        consumer.close()
    return over


def _commits(lake: Path) -> list[Path]:
    """The commits of the table that is written last."""
    return sorted((lake / "groups" / "_delta_log").glob("*.json"))


def _found(lake: Path) -> dict[int, float]:
    """When it was said first that findings go up to an event, by the number of the event."""
    found: dict[int, float] = {}
    for commit in _commits(lake):
        for line in commit.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "add" not in action:
                continue
            path = lake / "groups" / action["add"]["path"]
            rows = pyarrow.parquet.read_table(path, columns=["group", "last_sequence"])
            for row in rows.to_pylist():
                if row["group"] == _GROUP:
                    found.setdefault(row["last_sequence"], commit.stat().st_mtime)
    return found


def _wait(condition: Callable[[], bool], job: subprocess.Popen[bytes]) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while not condition():
        if job.poll() is not None or time.monotonic() > deadline_s:
            raise RuntimeError("the job has ended, or finds nothing")
        time.sleep(0.5)
