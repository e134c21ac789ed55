"""Spark's connector and our own landing through TLS and SCRAM, with the least rules of the docs."""

from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, Final

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tests.interop.least_rights.checks import check_needed, check_suffice, each_need
from tests.interop.least_rights.visitors import (
    VALUES,
    Client,
    Guarded,
    Names,
    ProgramResult,
    guarded_broker,
)
from tests.pipeline.conftest import Pipeline
from tests.support.clients.login import Login

READS: Final = "Spark's connector, reading"
WRITES: Final = "Spark's connector, writing"
LANDS: Final = "`kohort pipeline land`"

pytestmark = pytest.mark.long


@pytest.fixture(scope="module", params=["kohort", "kafka"])
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    with guarded_broker(request.param, tmp_path_factory.mktemp("guarded")) as guarded:
        yield guarded


def options(login: Login) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": login.bootstrap,
        **{f"kafka.{name}": value for name, value in login.java().items()},
    }


def outcome(work: Callable[[], bool]) -> ProgramResult:
    try:
        return ProgramResult(work(), "")
    except (Py4JError, PySparkException) as error:
        return ProgramResult(is_done=False, said=str(error))


def reader(spark: SparkSession) -> Client:
    def work(login: Login, names: Names, _directory: Path) -> ProgramResult:
        def reads() -> bool:
            frame: DataFrame = (
                spark.read.format("kafka")
                .options(**options(login), subscribe=names["TOPIC"])
                .load()
            )
            return sorted(bytes(row["value"]) for row in frame.collect()) == sorted(VALUES)

        return outcome(reads)

    return Client(READS, work, filled=["TOPIC"])


def writer(spark: SparkSession) -> Client:
    def work(login: Login, names: Names, _directory: Path) -> ProgramResult:
        def writes() -> bool:
            frame = spark.createDataFrame([("value",)], "value string")
            frame.write.format("kafka").options(**options(login), topic=names["TOPIC"]).save()
            return True

        return outcome(writes)

    return Client(WRITES, work, empty=["TOPIC"])


def lander(pipeline: Pipeline) -> Client:
    def work(login: Login, names: Names, directory: Path) -> ProgramResult:
        config = login.java_file(directory / "client.properties")
        where: tuple[Any, ...] = ("--bootstrap-server", login.bootstrap, "--kafka-config", config)
        with redirect_stdout(StringIO()) as out, redirect_stderr(out):
            code = pipeline(
                *("land", names["TOPIC"], "--available-now", *where, "--lake", directory / "lake")
            )
        said = out.getvalue()
        return ProgramResult(code == 0 and "the commit to the group" not in said, said)

    return Client(LANDS, work, filled=["TOPIC"])


@pytest.fixture
def clients(spark: SparkSession, pipeline: Pipeline) -> dict[str, Client]:
    return {"reader": reader(spark), "writer": writer(spark), "lander": lander(pipeline)}


ROWS: Final = {"reader": READS, "writer": WRITES, "lander": LANDS}


@pytest.mark.parametrize("name", ROWS)
def test_spark_needs_no_more_than_the_document_says(
    guarded: Guarded, clients: dict[str, Client], name: str, tmp_path: Path
) -> None:
    check_suffice(guarded, clients[name], "SCRAM-SHA-512", tmp_path)


@each_need(ROWS)
def test_spark_is_denied_without_any_of_its_rules(
    guarded: Guarded, clients: dict[str, Client], name: str, number: int, tmp_path: Path
) -> None:
    check_needed(guarded, clients[name], number, tmp_path)
