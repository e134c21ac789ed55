"""A lake on an object store: another implementation of S3, and Hadoop's client for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from kohort.pipeline import jars
from tests.pipeline.catalogs import (
    BUCKET,
    CREDENTIALS,
    as_environment,
    object_store,
    on_object_store,
)
from tests.pipeline.driver import LANDED, Driver, as_in_topic, run_job
from tests.pipeline.events import avoided, line, member, rebalance, records, take
from tests.pipeline.spark_settings import JARS, JAVA_OPTIONS
from tests.pipeline.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kohort.groups.history.model import HistoryRecord
    from tests.support.brokers.kohort_server import KohortServer

pytestmark = pytest.mark.skipif(
    jars.locked(jars.LOCK_S3, "4.2.0") != jars.locked(jars.LOCK_S3),
    reason="this Spark has no jars for lakes under s3a://",
)

EVENTS: list[HistoryRecord] = [
    rebalance(1, 0, member("a-1", join=0, sync=9, fate="new", gained=["t-0"])),
    rebalance(2, 60, member("a-1", join=0, sync=30, kept=1)),
    avoided(3, 90),
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    """The endpoint of a store with one empty bucket."""
    with object_store(tmp_path) as endpoint:
        yield endpoint


def hadoops_settings(store: str) -> dict[str, str]:
    """What Spark has to know of the store, beside credentials."""
    return {
        "spark.hadoop.fs.s3a.endpoint": store,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }


@pytest.mark.timeout(1_200)
@pytest.mark.long
def test_a_lake_on_s3_takes_a_history_and_one_event_more(
    spark_jars: Path, store: str, tmp_path: Path
) -> None:
    assert spark_jars == JARS
    settings = hadoops_settings(store) | {
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    }

    where = ["--lake", f"s3a://{BUCKET}/kohort", "--jars", str(JARS), "--master", "local[2]"]
    for name, value in settings.items():
        where += ["--conf", f"{name}={value}"]

    def run(job: str, *arguments: str) -> str:
        return run_job(CREDENTIALS, job, *arguments, *where)

    lines = [line(record) for record in EVENTS]
    first, more = tmp_path / "first.jsonl", tmp_path / "more.jsonl"
    first.write_bytes(b"\n".join(lines[:2]))
    more.write_bytes(b"\n".join(lines))
    assert "findings of 1 group renewed" in run("rebalances", "--from", str(first))
    # Read back, and changed, by the commits that are there.
    told = run("rebalances", "--from", str(more))
    assert "2 rebalances, 1 avoided" in told
    assert "findings of 1 group renewed" in told
    assert "findings of" not in run("rebalances", "--from", str(more))
    assert "tables" in run("tidy")


@pytest.mark.timeout(600)
@pytest.mark.long
def test_icebergs_tables_are_on_s3_by_pyicebergs_own_client(
    store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of the history and of findings, which take no Spark."""
    catalogs = pytest.importorskip("pyiceberg.catalog")
    from kohort.pipeline.catalog import Namespace  # noqa: PLC0415 - Spark's types, in these three.
    from kohort.pipeline.iceberg.lake import IcebergLake  # noqa: PLC0415
    from kohort.pipeline.rebalances.findings import Findings, Thresholds  # noqa: PLC0415

    settings = on_object_store(store, tmp_path)
    real = catalogs.load_catalog
    monkeypatch.setattr(
        "kohort.pipeline.iceberg.catalogs.load_catalog", lambda name: real(name, **settings)
    )
    lake = IcebergLake(
        cast("SparkSession", None), f"s3a://{BUCKET}/kohort", Namespace.parse("prod.kafka")
    )
    values = [line(record) for record in EVENTS]
    for end in (2, 3, 3):
        take(lake, records(values[:end]))
        Findings(lake, Thresholds()).renew()
    assert not Findings(lake, Thresholds()).renew()

    # A catalog of SQL's has tables by its own name.
    table = real("prod", **settings).load_table(("kafka", "groups"))
    assert table.location().startswith(f"s3://{BUCKET}/warehouse/")
    assert [row["event_count"] for row in table.scan().to_arrow().to_pylist()] == [3]


@pytest.mark.timeout(1_800)
@pytest.mark.long
def test_a_topic_lands_once_in_icebergs_tables_on_s3(
    spark_jars: Path, store: str, kohort: KohortServer, topics: Topics, tmp_path: Path
) -> None:
    """Spark writes the files by Hadoop's client, PyIceberg commits them by its own; the driver is
    killed amid its batches.
    """
    catalogs = pytest.importorskip("pyiceberg.catalog")
    from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415 - an extra.

    topic, log = topics.create(3), tmp_path / "driver.log"
    topics.produce(topic, 900, partitions=3)
    settings = on_object_store(store, tmp_path)
    environment = CREDENTIALS | as_environment("prod", settings)
    catalog = catalogs.load_catalog("prod", **settings)
    name = ("kafka", f"land_{topic.replace('-', '_')}")

    def start() -> Driver:
        options = [topic, "--format", "iceberg", "--catalog", "prod.kafka", "--partition-by-day"]
        options += ["--available-now", "--max-offsets-per-trigger", "150"]
        for setting in hadoops_settings(store).items():
            options += ["--conf", "=".join(setting)]
        lake = f"s3a://{BUCKET}/kohort"
        return Driver(spark_jars, kohort.bootstrap, lake, log, *options, environment=environment)

    def batches() -> int:
        try:
            return len(catalog.load_table(name).snapshots())
        except NoSuchTableError:
            return 0

    with start() as driver:
        driver.wait_until(lambda: batches() >= 2, "two batches")
        driver.kill()
    assert batches() < 6
    with start() as driver:
        assert driver.wait() == 0, log.read_text()[-3000:]
    topics.produce(topic, 60, partitions=3, first=900)
    with start() as driver:
        assert driver.wait() == 0, log.read_text()[-3000:]

    table = catalog.load_table(name)
    assert table.location().startswith(f"s3://{BUCKET}/warehouse/")
    rows = table.scan(selected_fields=tuple(LANDED)).to_arrow().to_pylist()
    assert as_in_topic(rows) == topics.read(topic)
    assert len(rows) == 960


def test_the_jars_for_s3_fit_the_hadoop_that_spark_brings() -> None:
    import pyspark  # noqa: PLC0415 - slow to import.

    own = Path(pyspark.__file__).with_name("jars").glob("hadoop-client-api-*.jar")
    version = next(own).stem.rpartition("-")[2]
    by_artifact = {jar.artifact: jar.version for jar in jars.locked(jars.LOCK_S3)}
    assert by_artifact["hadoop-aws"] == version
