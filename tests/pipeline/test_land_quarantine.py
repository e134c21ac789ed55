"""Values that cannot be decoded are put aside: no record is lost, and none is there twice."""

from __future__ import annotations

import io
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

import fastavro
import pytest

from tests.pipeline.frames import assert_rows
from tests.pipeline.lakes import lake_of
from tests.pipeline.test_land_shape import BEGIN_MS, DAY_MS, decoded, made_producer, produce
from tests.pipeline.topics import Topics
from tests.support.network.schemas import USER, Schemas, registered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kohort.pipeline.lake import Lake
    from kohort.pipeline.landing.topic import TopicLander
    from tests.pipeline.conftest import Pipeline

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

RECORD = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}


class PowerCut(Exception):  # noqa: N818 - it is no error of anybody's.
    """Nothing more is done after this."""


class BreakingLake:
    """A lake of which nothing more is heard before a batch goes into quarantine, the n-th time."""

    def __init__(self, lake: Lake, at: int) -> None:
        self._lake, self._left = lake, at

    def __getattr__(self, name: str) -> object:
        return getattr(self._lake, name)

    def append_once(self, frame: DataFrame, name: str, *, app_id: str, batch_id: int) -> None:
        if name.startswith("quarantined/"):
            self._left -= 1
            if not self._left:
                raise PowerCut
        self._lake.append_once(frame, name, app_id=app_id, batch_id=batch_id)


def put_aside(lake: Lake, topic: str) -> DataFrame:
    """Offset, value and reason."""
    return lake.read(f"quarantined/{topic}").select("offset", "value", "undecodable")


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_json_is_text_beside_its_bytes_and_what_is_none_is_put_aside_and_counted(
    pipeline: Pipeline,
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    topic, metrics = topics.create(), tmp_path / "metrics.prom"
    lake = lake_of(spark, tmp_path / "lake", kind)
    doubled = b'{"a": 1}{"b": 2}'
    produce(topics, topic, b'{"a": 1}', b"{", None, b"\xff", b'{"a": 1, "a": 2}', doubled)
    job: tuple[object, ...] = (
        "land",
        topic,
        "--available-now",
        "--bootstrap-server",
        topics.bootstrap,
        "--format",
        kind,
    )
    job = (*job, "--lake", tmp_path / "lake", "--metrics-file", metrics)
    assert pipeline(*job, "--value", "json") == 0
    landed = lake.read(f"land/{topic}")
    assert_rows(decoded(landed), [(0, '{"a": 1}'), (2, None), (4, '{"a": 1, "a": 2}')])
    assert landed.where("landed_at > timestamp").count() == 3
    brace = "not JSON: Expecting property name enclosed in double quotes at character 1"
    twice = "not JSON: Extra data at character 8"
    bad = [
        (1, b"{", brace),
        (3, b"\xff", "not UTF-8: invalid start byte at byte 0"),
        (5, b'{"a": 1}{"b": 2}', twice),
    ]
    assert_rows(put_aside(lake, topic), bad)
    told = capfd.readouterr().err
    assert f"3 records quarantined in the table quarantined/{topic}" in told
    assert "land: 6 rows in all, 3 of them in quarantine" in told
    quarantined = [one for one in metrics.read_text().splitlines() if "quarantined_total{" in one]
    assert [line.rpartition(" ")[2] for line in quarantined] == ["3.0"]
    # Decoding is a matter of each run; the bytes are always there.
    produce(topics, topic, b"[")
    assert pipeline(*job) == 0
    assert_rows(decoded(lake.read(f"land/{topic}")).where("offset = 6"), [(6, None)])
    assert_rows(put_aside(lake, topic), bad)
    # What is in quarantine is landed: a lost checkpoint brings nothing of it again.
    shutil.rmtree(tmp_path / "lake" / "_checkpoints")
    produce(topics, topic, b"{")
    assert pipeline(*job, "--value", "json") == 0
    assert_rows(lake.read(f"land/{topic}").select("offset"), [(n,) for n in (0, 2, 4, 6)])
    assert_rows(put_aside(lake, topic), [*bad, (7, b"{", brace)])


@pytest.fixture(params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Lake:
    return lake_of(spark, tmp_path / "lake", request.param)


@pytest.fixture
def schemas() -> Iterator[Schemas]:
    """A registry that knows the schema 5."""
    with registered() as found:
        found.answers["/schemas/ids/5"] = {"schema": json.dumps(RECORD)}
        yield found


Begin: TypeAlias = Callable[..., "TopicLander"]


@pytest.fixture
def lander(
    spark: SparkSession, topics: Topics, tmp_path: Path, schemas: Schemas
) -> Iterator[Begin]:
    """Begins to land a topic into a lake, by batches of eight records.

    Each time as if by other processes, to which the registry is new: its address ends otherwise.
    """
    from kohort.pipeline.kafka import Kafka  # noqa: PLC0415 - Spark's.
    from kohort.pipeline.landing.decoding import Decoding  # noqa: PLC0415
    from kohort.pipeline.landing.topic import LandingSettings, TopicLander  # noqa: PLC0415
    from kohort.pipeline.streaming.query import StreamSettings  # noqa: PLC0415

    with ExitStack() as stack:
        slashes = itertools.count()

        def begin(lake: Lake | BreakingLake, topic: str, first: str | int) -> TopicLander:
            settings = LandingSettings(
                stream=StreamSettings(str(tmp_path / "checkpoints"), None, True, 1.0),
                record_losses=False,
                begin=first,
                backfill_ms=None,
                offsets_max=8,
                bytes_max=1 << 20,
                min_partitions=None,
                decoding=Decoding("avro", schemas.registry.url + "/" * next(slashes), USER),
            )
            kafka = Kafka(topics.bootstrap, {}, timeout_s=15)
            made = TopicLander(spark, kafka, cast("Lake", lake), topic, settings)
            stack.callback(made.close)
            return made

        yield begin


def land(lander: TopicLander) -> Exception | None:
    return lander.query.failure(lander.start())


def avro(number: int) -> bytes:
    """A record of schema 5 if the number is even, else of schema 6."""
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(RECORD), {"n": number})
    return (5 + number % 2).to_bytes(5) + body.getvalue()


def places(lake: Lake, name: str) -> DataFrame:
    return lake.read(name).select("partition", "offset")


def test_a_schema_that_comes_amid_a_batch_leaves_its_records_where_they_were_put(
    lake: Lake, lander: Begin, topics: Topics, schemas: Schemas
) -> None:
    topic = topics.create()
    produce(topics, topic, *map(avro, range(24)))
    # The first batch is whole; of the second one, the quarantine lacks its part.
    assert isinstance(land(lander(BreakingLake(lake, at=2), topic, "earliest")), Exception)
    assert_rows(places(lake, f"land/{topic}"), [(0, n) for n in range(0, 16, 2)])
    assert_rows(places(lake, f"quarantined/{topic}"), [(0, n) for n in range(1, 8, 2)])
    schemas.answers["/schemas/ids/6"] = {"schema": json.dumps(RECORD)}
    assert land(lander(lake, topic, "earliest")) is None
    landed = [*range(0, 16, 2), *range(16, 24)]
    assert_rows(places(lake, f"land/{topic}"), [(0, n) for n in landed])
    assert_rows(places(lake, f"quarantined/{topic}"), [(0, n) for n in range(1, 16, 2)])
    reasons = put_aside(lake, topic).select("offset", "undecodable").where("offset IN (7, 9)")
    unknown, later = (
        "the registry has no schema 6",
        "could not be decoded when its batch was landed",
    )
    assert_rows(reasons, [(7, unknown), (9, later)])


def test_a_backfill_that_was_killed_between_its_tables_is_made_whole(
    lake: Lake, lander: Begin, topics: Topics, schemas: Schemas
) -> None:
    topic = topics.create()
    produce(topics, topic, *map(avro, range(12)))
    assert land(lander(lake, topic, BEGIN_MS + 9 * DAY_MS)) is None
    assert_rows(places(lake, f"land/{topic}"), [(0, 10)])
    with pytest.raises(PowerCut):
        lander(BreakingLake(lake, at=1), topic, "earliest").backfill(BEGIN_MS + 4 * DAY_MS)
    assert_rows(places(lake, f"land/{topic}"), [(0, n) for n in (4, 6, 8, 10)])
    schemas.answers["/schemas/ids/6"] = {"schema": json.dumps(RECORD)}
    for since in (4, 4, 2, 2):
        lander(lake, topic, "earliest").backfill(BEGIN_MS + since * DAY_MS)
    assert_rows(places(lake, f"land/{topic}"), [(0, n) for n in (2, 3, 4, 6, 8, 10)])
    assert_rows(places(lake, f"quarantined/{topic}"), [(0, n) for n in (5, 7, 9, 11)])


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_records_with_timestamps_beyond_sparks_range_are_quarantined(
    pipeline: Pipeline,
    spark: SparkSession,
    topics: Topics,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    kind: str,
) -> None:
    topic = topics.create(2, message_timestamp_after_max_ms=str(2**63 - 1))
    lake = lake_of(spark, tmp_path / "lake", kind)
    last, first_beyond, nanoseconds = 9_223_372_036_854_775, 9_223_372_036_854_776, BEGIN_MS * 10**6
    times = [BEGIN_MS, first_beyond, last, BEGIN_MS, *[nanoseconds] * 250, BEGIN_MS + 1, 2**63 - 1]
    producer = made_producer(topics)
    for number, at in enumerate(times):
        producer.produce(topic, b"%d" % at, b"k", 0, timestamp=at, headers=[("n", b"%d" % number)])
    producer.produce(topic, b"other", None, 1, timestamp=BEGIN_MS)
    assert producer.flush(60) == 0
    job: tuple[object, ...] = ("land", topic, "--available-now", "--format", kind)
    job = (*job, "--bootstrap-server", topics.bootstrap, "--lake", tmp_path / "lake")
    bad_count = sum(at > last for at in times)
    summary = f"{len(times) + 1} rows in all, {bad_count} of them in quarantine"
    for expected in (summary, "0 rows in all"):
        assert pipeline(*job) == 0
        assert f"land: {expected}\n" in capfd.readouterr().err
        landed = lake.read(f"land/{topic}")
        millis = landed.selectExpr("partition", "offset", "unix_millis(timestamp)", "key")
        good = [(n, at) for n, at in enumerate(times) if at <= last]
        assert_rows(millis, [*((0, n, at, b"k") for n, at in good), (1, 0, BEGIN_MS, None)])
        aside = lake.read(f"quarantined/{topic}").where("timestamp IS NULL")
        assert_rows(
            aside.selectExpr("offset", "value", "undecodable", "string(headers[0].value)"),
            [
                (n, b"%d" % at, f"its timestamp exceeds Spark's range: {at}", str(n))
                for n, at in enumerate(times)
                if at > last
            ],
        )
