"""A lake in a REST catalog: Iceberg's own implementation of one."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.conftest import JARS, JAVA_OPTIONS
from tests.pipeline.events import GROUP, line
from tests.pipeline.test_s3 import EVENTS
from tests.support.brokers.server_process import free_port
from tests.support.processes import java_env

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tests.pipeline.topics import Topics

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_200)]


@contextmanager
def catalog_server(warehouse: str, log: Path) -> Iterator[str]:
    """Its address, when it answers."""
    java_env.fetch("iceberg")
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    command = [java_env.java(), "-Xmx256M", "-XX:TieredStopAtLevel=1"]
    command += ["-cp", java_env.classpath("iceberg")]
    command += ["org.apache.iceberg.rest.CatalogServer", str(port), warehouse]
    with log.open("wb") as output:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 60
        while not answers(f"{address}/v1/config"):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "the catalog does not answer"
            time.sleep(0.1)
        yield address
    finally:
        server.kill()
        server.wait()


def answers(address: str) -> bool:
    try:
        urllib.request.urlopen(address, timeout=10).close()
    except OSError:
        return False
    return True


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What PyIceberg is told of the catalog."""
    pytest.importorskip("pyiceberg")
    with catalog_server(f"file://{tmp_path}/warehouse", tmp_path / "catalog.log") as address:
        yield {"type": "rest", "uri": address}


def test_topics_and_histories_are_kept_in_a_rest_catalog(
    spark_jars: Path,
    topics: Topics,
    tmp_path: Path,
    settings: dict[str, str],
) -> None:
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an extra.

    assert spark_jars == JARS
    told = {f"PYICEBERG_CATALOG__PROD__{name.upper()}": at for name, at in settings.items()}
    environment = os.environ | told

    def run(job: str, *arguments: str) -> str:
        command = [sys.executable, "-m", "kohort.cli", "pipeline", job, *arguments]
        command += ["--format", "iceberg", "--catalog", "prod.kafka", "--jars", str(JARS)]
        command += ["--lake", str(tmp_path / "lake")]
        command += ["--master", "local[2]", "--conf", "spark.driver.memory=1g"]
        command += ["--conf", "spark.ui.enabled=false"]
        command += ["--conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}"]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        return done.stderr

    history = tmp_path / "history.jsonl"
    history.write_bytes(b"".join(line(event) + b"\n" for event in EVENTS[:-1]))
    run("rebalances", "--from", str(history))
    with history.open("ab") as file:
        file.write(line(EVENTS[-1]) + b"\n")
    # What is read again is there already.
    run("rebalances", "--from", str(history))
    topic = topics.create(2)
    for first in (0, 40):
        topics.produce(topic, 40, partitions=2, first=first, json_but_every=7)
        land = ("--value", "json", "--bootstrap-server", topics.bootstrap, "--available-now")
        run("land", topic, *land)

    catalog = load_catalog("read", **settings)
    assert len(rows(catalog, "rebalances")) == 2
    ((group, count),) = [(row["group"], row["event_count"]) for row in rows(catalog, "groups")]
    assert (group, count) == (GROUP, 3)
    name = topic.replace("-", "_")
    landed, aside = rows(catalog, f"land_{name}"), rows(catalog, f"quarantined_{name}")
    assert sorted((row["partition"], row["offset"]) for row in landed + aside) == [
        (partition, offset) for partition in range(2) for offset in range(40)
    ]
    assert len(aside) == len(range(0, 80, 7))
    assert all(row["undecodable"] == "not JSON" for row in aside)


def rows(catalog: Catalog, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = catalog.load_table(("kafka", name)).scan().to_arrow().to_pylist()
    return found
