"""Landing a topic in a Delta table: the same job reading from each broker.

`kohort pipeline land --available-now`, as its users run it, in a process of its own: 1 kB records
of three partitions, in one batch. The rows per second are those of the batch, so they have the
compilers of a young JVM in them and not its start. The table is counted by its own log. The same
topic is then landed by Spark's connector and Delta alone (:mod:`benchmarks.connector`).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import connector
from benchmarks.brokers import Contender
from benchmarks.harness import Bench, Measured, Pair, Row, progress
from benchmarks.machine import ROOT
from benchmarks.spark_cluster import Cluster
from benchmarks.use import Use
from kohort.pipeline import session

TITLE: Final = "Landing 1 kB records in a Delta table with Spark"

_RECORDS: Final = 400_000
_VALUE_BYTES: Final = 1_000
_PARTITIONS: Final = 3
_JARS: Final = ROOT / ".cache" / "jars"
_SHARE: Final = round(1 / 1.15, 2)
"""What is landed may cost so much more than what is only read and written."""
_BATCH: Final = re.compile(r"batch 0, [\d,]+ rows in ([\d.]+) s, ([\d,]+) rows/s")


def measure(bench: Bench) -> Iterable[Row]:
    if not _JARS.is_dir():
        progress("")
        return
    yield from rows(bench.alternate(partial(land, bench)))


def rows(figures: Mapping[str, Pair]) -> Iterable[Row]:
    """The rows of the table, of what `land` has measured."""
    yield Row("rows landed", "rows/s", figures["rows"], "more", aim=0.8)
    yield Row("rows by Spark's connector alone", "rows/s", figures["connector"], "more")
    yield Row("share of that", "x", figures["share"], "more", limit=_SHARE)
    yield Row("bytes of values landed", "MB/s", figures["megabytes"], "more")
    yield Row("the whole command, its start included", "s", figures["whole"])
    yield Row("processor time of it", "s", figures["processor"])
    yield Row("memory of driver and executor at most", "MiB", figures["memory"])


def land(bench: Bench, contender: Contender, cluster: Cluster | None = None) -> Measured:
    """Fill a topic and land it both ways, on this machine's cores or on a cluster."""
    directory = bench.directory / f"landing-{contender.name}-{time.monotonic_ns()}"
    arguments = cluster.arguments if cluster else []
    environment = cluster.environment if cluster else dict(os.environ)
    executors_s = cluster.processor_s if cluster else 0.0
    with contender.start(directory / "broker") as broker:
        broker.wait_serving()
        bootstrap = f"127.0.0.1:{broker.port}"
        _fill(bootstrap)
        begun = time.perf_counter()
        process = subprocess.Popen(
            [*_command(bootstrap, directory / "lake"), *arguments],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        use = Use(process.pid)
        _, told = process.communicate()
        whole_s = time.perf_counter() - begun
        executors_s = cluster.processor_s - executors_s if cluster else 0.0
        alone = _by_the_connector(bootstrap, directory / "connector", cluster)
    batch = _BATCH.search(told)
    if process.returncode or batch is None or _rows(directory / "lake") != _RECORDS:
        raise RuntimeError(f"not landed as it should be:\n{told[-2000:]}")
    speed = float(batch[2].replace(",", ""))
    return {
        "rows": speed,
        "connector": alone,
        "share": speed / alone,
        "megabytes": speed * _VALUE_BYTES / 1e6,
        "whole": whole_s,
        "processor": use.processor_s + executors_s,
        "memory": use.mib,
    }


def _command(bootstrap: str, lake: Path) -> list[str]:
    command = [sys.executable, "-m", "kohort.cli", "pipeline", "land", connector.TOPIC]
    command += ["--available-now", "--max-offsets-per-trigger", str(_RECORDS)]
    command += ["--lake", str(lake), "--bootstrap-server", bootstrap, "--jars", str(_JARS)]
    conf = [f"{name}={value}" for name, value in connector.CONF.items()]
    return [*command, *(word for setting in conf for word in ("--conf", setting))]


def _by_the_connector(bootstrap: str, directory: Path, cluster: Cluster | None) -> float:
    """The rows per second of a batch without Kohort's part in it."""
    master = cluster.url if cluster else session.MASTER
    arguments = (bootstrap, str(directory), str(_RECORDS), str(_JARS), master)
    command = [sys.executable, "-m", "benchmarks.connector", *arguments]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=cluster.environment if cluster else None,
        capture_output=True,
        text=True,
        check=False,
    )
    words = done.stdout.split()
    if done.returncode or len(words) != 2 or int(words[0]) != _RECORDS:
        raise RuntimeError(f"the connector alone did not land it:\n{done.stderr[-2000:]}")
    return float(words[1])


def _fill(bootstrap: str) -> None:
    from confluent_kafka import Producer  # noqa: PLC0415 - slow to import, for others to do without.
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - as above.
    from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415 - as above.

    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(connector.TOPIC, num_partitions=_PARTITIONS, replication_factor=1)
    admin.create_topics([topic])[connector.TOPIC].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "queue.buffering.max.kbytes": 1 << 20,
            "queue.buffering.max.messages": _RECORDS + 1,
        }
    )
    # Half of it does not compress: neither the best nor the worst that a table may be given.
    values = [os.urandom(_VALUE_BYTES // 2).hex().encode()[:_VALUE_BYTES] for _ in range(997)]
    for number in range(_RECORDS):
        producer.produce(connector.TOPIC, values[number % 997], partition=number % _PARTITIONS)
        if not number % 1_000:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not all records could be written")


def _rows(lake: Path) -> int:
    """How many rows the table has, as its log says."""
    count = 0
    for commit in (lake / "land" / connector.TOPIC / "_delta_log").glob("*.json"):
        for line in commit.read_text(encoding="utf-8").splitlines():
            action = json.loads(line)
            if "add" in action:
                count += json.loads(action["add"]["stats"])["numRecords"]
    return count
