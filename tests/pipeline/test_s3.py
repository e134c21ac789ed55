"""A lake on an object store: another implementation of S3, and Hadoop's client for it."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kohort.pipeline import jars
from tests.pipeline.conftest import JARS, JAVA_OPTIONS
from tests.pipeline.events import avoided, line, member, rebalance
from tests.support.brokers.server_process import free_port

if TYPE_CHECKING:
    from kohort.broker.core.history.model import HistoryRecord

BUCKET = "lake"
ROOT = Path(__file__).parents[2]

EVENTS: list[HistoryRecord] = [
    rebalance(1, 0, member("a-1", join=0, sync=9, fate="new", gained=["t-0"])),
    rebalance(2, 60, member("a-1", join=0, sync=30, kept=1)),
    avoided(3, 90),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """The endpoint of a store with one empty bucket."""
    if importlib.util.find_spec("moto") is None:
        pytest.skip("pip install 'moto[s3]' flask flask-cors")
    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-p", str(port)]
    with (tmp_path / "store.log").open("wb") as log:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not has_bucket(endpoint):
            assert time.monotonic() < deadline, "the store does not answer"
            time.sleep(0.1)
        yield endpoint
    finally:
        server.kill()
        server.wait()


def has_bucket(endpoint: str) -> bool:
    request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return bool(answer.status == HTTPStatus.OK)
    except OSError:
        return False


@pytest.mark.timeout(1_200)
@pytest.mark.long
def test_a_lake_on_s3_takes_a_history_and_one_event_more(
    spark_jars: Path, store: str, tmp_path: Path
) -> None:
    assert spark_jars == JARS
    environment = os.environ | {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    settings = {
        "spark.hadoop.fs.s3a.endpoint": store,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    }

    def run(job: str, *arguments: str) -> str:
        command = [sys.executable, "-m", "kohort.cli", "pipeline", job, *arguments]
        command += ["--lake", f"s3a://{BUCKET}/kohort", "--jars", str(JARS)]
        command += ["--master", "local[2]"]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stderr

    lines = [line(record) for record in EVENTS]
    first, more = tmp_path / "first.jsonl", tmp_path / "more.jsonl"
    first.write_bytes(b"\n".join(lines[:2]))
    more.write_bytes(b"\n".join(lines))
    assert "findings of 1 groups made again" in run("rebalances", "--from", str(first))
    # Read back, and changed, by the commits that are there.
    told = run("rebalances", "--from", str(more))
    assert "2 rebalances, 1 avoided" in told
    assert "findings of 1 groups made again" in told
    assert "findings of" not in run("rebalances", "--from", str(more))
    assert "tables" in run("tidy")


def test_the_jars_for_s3_fit_the_hadoop_that_spark_brings() -> None:
    import pyspark  # noqa: PLC0415 - slow to import.

    own = Path(pyspark.__file__).with_name("jars").glob("hadoop-client-api-*.jar")
    version = next(own).stem.rpartition("-")[2]
    by_artifact = {jar.artifact: jar.version for jar in jars.locked(jars.LOCK_S3)}
    assert by_artifact["hadoop-aws"] == version
