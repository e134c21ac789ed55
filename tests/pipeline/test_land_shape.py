"""What a landed table has beside the bytes: days, decoded values, a catalog that knows it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import fastavro
import pytest

from tests.pipeline.frames import assert_rows
from tests.pipeline.topics import Topics
from tests.support.brokers.secure_kafka import PASSWORD, USER
from tests.support.brokers.secure_kohort import SecureKohort
from tests.support.network.schemas import USER as READER
from tests.support.network.schemas import registered

if TYPE_CHECKING:
    from confluent_kafka import Producer
    from pyspark.sql import DataFrame, SparkSession

    from tests.pipeline.conftest import Pipeline

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

DAY_MS = 86_400_000
BEGIN_MS = 1_767_225_600_000
"""The year 2026 in UTC."""


def produce(topics: Topics, topic: str, *values: bytes | None) -> None:
    """One record a day."""
    producer = made_producer(topics)
    for number, value in enumerate(values):
        producer.produce(topic, value, timestamp=BEGIN_MS + number * DAY_MS)
    assert producer.flush(60) == 0


def made_producer(topics: Topics) -> Producer:
    from confluent_kafka import Producer  # noqa: PLC0415

    return Producer({"bootstrap.servers": topics.bootstrap, "log_level": 0})


def table(spark: SparkSession, lake: Path, topic: str) -> DataFrame:
    return spark.read.format("delta").load(str(lake / "land" / topic))


def decoded(frame: DataFrame) -> DataFrame:
    """Which value is where."""
    return frame.select("offset", "decoded")


def test_avro_is_decoded_by_the_schemas_of_a_registry(
    pipeline: Pipeline,
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), {"n": 7})
    good = b"\x00\x00\x00\x00\x05" + body.getvalue()
    topic = topics.create()
    produce(topics, topic, good, b"plain", good)
    monkeypatch.setenv("KOHORT_REGISTRY_USER", READER)
    job: tuple[object, ...] = (
        "land",
        topic,
        "--available-now",
        "--bootstrap-server",
        topics.bootstrap,
    )
    job = (*job, "--lake", tmp_path / "lake", "--value", "avro")
    assert pipeline(*job) == 2
    assert "needs a schema registry: --registry" in capfd.readouterr().err
    with registered() as schemas:
        schemas.answers["/schemas/ids/5"] = {"schema": json.dumps(schema)}
        assert pipeline(*job, "--registry", schemas.registry.url) == 0
    landed = table(spark, tmp_path / "lake", topic)
    assert_rows(decoded(landed), [(0, '{"n": 7}'), (2, '{"n": 7}')])
    bad = spark.read.format("delta").load(str(tmp_path / "lake/quarantined" / topic))
    assert_rows(bad.select("undecodable"), [("the value does not begin with a schema id",)])
    # Without a registry nothing can be said of a value, and nothing is landed.
    produce(topics, topic, b"\x00\x00\x00\x00\x06x")
    assert pipeline(*job, "--registry", "http://127.0.0.1:1") == 1
    assert "the schema registry does not answer" in capfd.readouterr().err
    assert table(spark, tmp_path / "lake", topic).count() == 2


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_is_cut_by_the_days_of_its_records(
    pipeline: Pipeline, spark: SparkSession, topics: Topics, tmp_path: Path, kind: str
) -> None:
    lake, topic = tmp_path / "lake", topics.create()
    job: tuple[object, ...] = (
        "land",
        topic,
        "--available-now",
        "--bootstrap-server",
        topics.bootstrap,
    )
    job = (*job, "--lake", lake, "--format", kind)
    for _ in range(2):
        produce(topics, topic, b"first", b"second", b"third")
        # How it is cut is said when it is made.
        assert pipeline(*job, "--partition-by-day") == 0
    produce(topics, topic, b"more")
    assert pipeline(*job) == 0
    if kind == "delta":
        landed = table(spark, lake, topic)
        days = {path.name for path in (lake / "land" / topic).glob("day=*")}
        assert days == {"day=2026-01-01", "day=2026-01-02", "day=2026-01-03"}
    else:
        from kohort.pipeline.iceberg.lake import IcebergLake  # noqa: PLC0415 - an extra.

        landed = IcebergLake(spark, str(lake)).read(f"land/{topic}")
    counts = [(date(2026, 1, 1), 3), (date(2026, 1, 2), 2), (date(2026, 1, 3), 2)]
    assert_rows(landed.groupBy("day").count(), counts)


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[SecureKohort]:
    with SecureKohort(tmp_path / "secure") as broker:
        yield broker


def test_a_topic_is_landed_through_sasl_and_tls(
    pipeline: Pipeline, spark: SparkSession, secure: SecureKohort, tmp_path: Path
) -> None:
    settings = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "ssl.ca.location": str(secure.authority.certificate),
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    from confluent_kafka import Producer  # noqa: PLC0415

    bootstrap = f"127.0.0.1:{secure.ports['SASL_SSL']}"
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
    producer.produce("orders", b"secret")
    assert producer.flush(60) == 0
    config = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    config.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={module} required username="{USER}" password="{PASSWORD}";\n'
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={secure.authority.certificate}\n"
    )
    job: tuple[object, ...] = ("land", "orders", "--available-now", "--bootstrap-server", bootstrap)
    assert pipeline(*job, "--lake", tmp_path / "lake", "--kafka-config", config) == 0
    assert_rows(table(spark, tmp_path / "lake", "orders").select("value"), [(b"secret",)])
