"""A lake in catalogs that are none of ours: REST, Hive's metastore, Glue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.pipeline.catalogs import (
    CREDENTIALS,
    as_environment,
    hive_metastore,
    object_store,
    rest_catalog,
)
from tests.pipeline.driver import quick_start, run_job
from tests.pipeline.events import GROUP, line
from tests.pipeline.test_s3 import EVENTS

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tests.pipeline.topics import Topics

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_200)]


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[dict[str, str]]:
    """What PyIceberg is told of the catalog; so do those below."""
    with rest_catalog(tmp_path) as address:
        yield {"type": "rest", "uri": address}


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A metastore of the version that Spark brings, which knows no times with a zone."""
    pytest.importorskip("thrift")
    with hive_metastore(tmp_path) as address:
        warehouse = f"file://{tmp_path}/warehouse"
        yield {
            "type": "hive",
            "uri": address,
            "warehouse": warehouse,
            "hive.hive2-compatible": "true",
        }


@pytest.fixture
def glue(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Another implementation of it."""
    with object_store(tmp_path) as address:
        yield {
            "type": "glue",
            "glue.endpoint": address,
            "glue.region": "us-east-1",
            "glue.access-key-id": CREDENTIALS["AWS_ACCESS_KEY_ID"],
            "glue.secret-access-key": CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            "warehouse": f"file://{tmp_path}/warehouse",
        }


@pytest.fixture(params=["rest", "hive", "glue"])
def settings(request: pytest.FixtureRequest) -> dict[str, str]:
    pytest.importorskip("pyiceberg")
    found: dict[str, str] = request.getfixturevalue(request.param)
    return found


def test_topics_and_histories_are_kept_in_a_catalog(
    spark_jars: Path,
    topics: Topics,
    tmp_path: Path,
    settings: dict[str, str],
) -> None:
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - an extra.

    environment = as_environment("prod", settings)
    here = ("--format", "iceberg", "--catalog", "prod.kafka", "--lake", str(tmp_path / "lake"))
    options = (*here, *quick_start(spark_jars))

    history = tmp_path / "history.jsonl"
    history.write_bytes(b"".join(line(event) + b"\n" for event in EVENTS[:-1]))
    run_job(environment, "rebalances", "--from", str(history), *options)
    with history.open("ab") as file:
        file.write(line(EVENTS[-1]) + b"\n")
    # What is read again is there already.
    run_job(environment, "rebalances", "--from", str(history), *options)
    topic = topics.create(2)
    for first in (0, 40):
        topics.produce(topic, 40, partitions=2, first=first, json_but_every=7)
        land = ("--value", "json", "--bootstrap-server", topics.bootstrap, "--available-now")
        run_job(environment, "land", topic, *land, *options)

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
    assert all(row["undecodable"].startswith("not JSON: ") for row in aside)


def rows(catalog: Catalog, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = catalog.load_table(("kafka", name)).scan().to_arrow().to_pylist()
    return found


def test_deltas_tables_are_entered_in_hives_metastore(
    spark_jars: Path, topics: Topics, tmp_path: Path
) -> None:
    lake, topic = tmp_path / "lake", topics.create(2)
    topics.produce(topic, 40, partitions=2)
    with hive_metastore(tmp_path) as address:
        options = ["--catalog", "spark_catalog.kafka", "--lake", str(lake)]
        options += ["--conf", "spark.sql.catalogImplementation=hive"]
        options += ["--conf", f"spark.hadoop.hive.metastore.uris={address}"]
        options += ["--conf", f"spark.sql.warehouse.dir={tmp_path}/warehouse"]
        options += quick_start(spark_jars)
        land = ("--bootstrap-server", topics.bootstrap, "--available-now", *options)
        for _ in range(2):
            topics.produce(topic, 40, partitions=2)
            run_job({}, "land", topic, *land)
        known = entered(address, "kafka", f"land_{topic.replace('-', '_')}")
    assert known == ("delta", f"file:{lake}/land/{topic}")


def entered(address: str, database: str, table: str) -> tuple[str, str]:
    """What kind of table the metastore knows by that name, and where it is."""
    hive = pytest.importorskip("pyiceberg.catalog.hive", exc_type=ImportError)
    with hive._HiveClient(address) as client:
        found = client.get_table(database, table)
    return found.parameters["spark.sql.sources.provider"], found.sd.serdeInfo.parameters["path"]
