"""One Spark session for all tests of the pipeline, small, on two cores.

Without Java or the jars (`make setup` fetches them) the tests are skipped with the reason, or
fail where everything has to be there (CI=true).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import java_env

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = Path(__file__).parents[2] / ".cache" / "jars"
"""Where `make` has put them."""

CONF = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # A table's log need not be read by many tasks where it has three entries.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.session.timeZone": "UTC",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets py4j leave sockets to the garbage collector, as it does."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(
                pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
            )


@pytest.fixture(scope="session")
def spark_jars() -> Path:
    """The directory of the jars; skips where Java, Spark or the jars are missing."""
    java_env.java()
    try:
        import pyspark  # noqa: F401, PLC0415
    except ImportError:
        java_env.missing("pyspark is not installed")
    from pipeline.jars import locked  # noqa: PLC0415

    for jar in locked():
        if not (JARS / jar.file_name).exists():
            java_env.missing(f"{jar.file_name} was not fetched")
    return JARS


@pytest.fixture(scope="session")
def spark(spark_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from pipeline.session import build  # noqa: PLC0415

    scratch = tmp_path_factory.mktemp("spark")
    conf = CONF | {
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
    }
    session = build("kohort-tests", master="local[2]", conf=conf, jars_directory=spark_jars)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
