"""One Spark session for all tests of the pipeline, small, on two cores.

Without Java or the jars (`make setup` fetches them) the tests are skipped with the reason, or
fail where everything has to be there (CI=true).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import pytest

from kohort.cli import main
from tests.pipeline.spark_settings import CONF, JARS
from tests.pipeline.topics import Topics
from tests.support.brokers.kohort_server import KohortServer
from tests.support.processes import java_env

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Pipeline: TypeAlias = Callable[..., int]
"""Takes the arguments of `kohort pipeline` and returns the exit code."""

KILLS_MANY = 10
"""Number of drivers below which the archive of classes takes longer than it saves."""


IGNORED: Final = (
    # py4j leaves sockets to the garbage collector.
    "ignore::pytest.PytestUnraisableExceptionWarning",
    # Spark 4.0 imports its pandas API to compare frames.
    "ignore:.PYARROW_IGNORE_TIMEZONE:UserWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.filterwarnings(*IGNORED))


@pytest.fixture(scope="session")
def spark_jars() -> Path:
    """The directory of the jars; skips where Java, Spark or the jars are missing."""
    java_env.java()
    try:
        import pyspark  # noqa: F401, PLC0415
    except ImportError:
        java_env.missing("pyspark is not installed")
    from kohort.pipeline.jars import locked  # noqa: PLC0415

    for jar in locked():
        if not (JARS / jar.file_name).exists():
            java_env.missing(f"{jar.file_name} was not fetched")
    return JARS


@pytest.fixture(scope="session")
def shared_classes(
    spark_jars: Path, pipeline_kills: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """For tests that start very many drivers, which start sooner then."""
    from tests.pipeline.driver import has_shared_classes, share_classes  # noqa: PLC0415 - pyarrow.

    if pipeline_kills > KILLS_MANY and not has_shared_classes(spark_jars):
        share_classes(spark_jars, tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="session")
def spark(spark_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from kohort.pipeline.session import build  # noqa: PLC0415

    scratch = tmp_path_factory.mktemp("spark")
    conf = CONF | {
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
    }
    session = build("kohort-tests", master="local[2]", conf=conf, jars_directory=spark_jars)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kohort(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KohortServer]:
    """A broker for all tests that do nothing to it."""
    with KohortServer(tmp_path_factory.mktemp("kohort")) as server:
        yield server


@pytest.fixture
def topics(kohort: KohortServer) -> Topics:
    return Topics(kohort.bootstrap)


@pytest.fixture
def pipeline(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """`kohort pipeline`, within the session of the tests."""
    assert spark is not None
    monkeypatch.setenv("KOHORT_JARS", str(JARS))
    monkeypatch.setenv("KOHORT_SPARK_MASTER", "local[2]")
    return lambda *arguments: main(["pipeline", *map(str, arguments)])
