"""The Spark session of a job: master, jars and options come from outside, never from a job.

Started by `spark-submit` (or from a notebook that has a session), what that one was told holds:
master and jars are its business, and only what the jobs rely on is added.
"""

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from kohort.insight.errors import UsageError
from kohort.pipeline import jars, jvm
from kohort.pipeline.errors import UnavailableError
from kohort.pipeline.java import LOGGING, find_java, without_java_warnings

MASTER: Final = "local[*]"
"""The default: all cores of this machine."""

RELIED_ON: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A table must not depend on where the machine stands that wrote it.
    "spark.sql.session.timeZone": "UTC",
}
"""What the jobs are written for. An option from outside may still replace any of it."""


_WAREHOUSE: Final = "spark.sql.warehouse.dir"
_LOCAL: Final = {
    # With Spark's one, a history of days with hundreds of groups is collected more than analysed.
    "spark.driver.memory": "2g",
    # The jobs tell of their progress themselves.
    "spark.ui.showConsoleProgress": "false",
    # 127.0.0.1 is where a session of one machine listens, whatever its name resolves to today.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Spark makes this directory, and nothing in it: tables are known by their paths. Without a word
    # it would be where the command was called.
    _WAREHOUSE: str(Path(tempfile.gettempdir(), f"kohort-warehouse-{os.getuid()}")),
}
"""Options of a session on one machine."""


_TALKATIVE: Final = {"DEBUG", "INFO", "WARN"}

_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_SNAPSHOT_PARTITIONS: Final = "spark.databricks.delta.snapshotPartitions"


def build(
    name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    jars_directory: Path | None = None,
    java_options: str = "",
    with_s3: bool = False,
    log_level: str = "ERROR",
) -> SparkSession:
    """The session of this process, made if there is none yet.

    `name` is what the cluster shows. `conf` are Spark's own settings. Missing jars are fetched
    into `jars_directory` (the user's cache without one), with progress on standard error.
    `java_options` are for the JVM of a session on this machine. With `with_s3`, paths under
    s3a:// can be named. `log_level` is what Spark says on standard error while it starts.

    Raises:
        UnavailableError: no Java, jars that cannot be fetched, or a session that does not start.
    """
    settings = dict(RELIED_ON)
    if not is_submitted():
        find_java()
        chosen = master or MASTER
        settings["spark.master"] = chosen
        if chosen.startswith("local"):
            settings |= _LOCAL
            options = f"{LOGGING} {java_options}"
            settings["spark.driver.extraJavaOptions"] = options.rstrip()
            # Workers would be whatever python3 the PATH has, which may lack what the jobs import.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings["spark.jars"] = ",".join(map(str, jars.ensure(jars_directory, with_s3=with_s3)))
    else:
        _prepare_submitted(settings, log_level)
        if master:
            settings["spark.master"] = master
    # py4j logs a stack trace for each call that a JVM does not answer; the job says so once.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.root.addFilter(_is_not_py4js)
    builder = SparkSession.builder.appName(name)
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    try:
        with without_java_warnings() if not is_submitted() else nullcontext():
            return builder.getOrCreate()
    except Exception as error:
        raise UnavailableError(
            f"Spark does not start: {error}\nIt needs Java 17 or 21; this is what `java` is here: "
            f"{shutil.which('java') or 'nothing on the PATH'}"
        ) from error


def _is_not_py4js(record: logging.LogRecord) -> bool:
    """Whether the record is of other code: py4j's gateway logs by no logger of its own."""
    return record.module != "java_gateway"


def _prepare_submitted(settings: dict[str, str], log_level: str) -> None:
    """Say to the JVM that `spark-submit` has started what a session's start would be too late for.

    A context that starts tells some ninety lines of itself, and makes the warehouse's directory in
    the working directory.
    """
    SparkContext._ensure_initialized()  # noqa: SLF001 - it connects to the JVM.
    log4j = SparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001
    log4j.core.config.Configurator.setRootLevel(log4j.Level.getLevel(log_level))
    if not SparkConf().contains(_WAREHOUSE):
        settings[_WAREHOUSE] = _LOCAL[_WAREHOUSE]


def fit_to_machine(spark: SparkSession) -> None:
    """Few large tasks: on one machine, Spark's 200 per shuffle cost more than what is in them, and
    anywhere so do Delta's 50 to read the log of a table. It makes no difference who started the
    session.

    What was said from outside stays, and so does a cluster's default for shuffles.
    """
    context = spark.sparkContext
    wanted = {_SNAPSHOT_PARTITIONS: 2}
    if (context.master or "").startswith("local"):
        wanted[_SHUFFLE_PARTITIONS] = 2 * context.defaultParallelism
    for name, count in wanted.items():
        if not context.getConf().contains(name):
            spark.conf.set(name, count)


def set_log_level(spark: SparkSession, level: str) -> None:
    """What Spark itself says on standard error; `level` is the name of one of log4j's.

    From WARN on downwards, this includes what log4j2.properties leaves to the job to tell.
    """
    spark.sparkContext.setLogLevel(level)
    if is_submitted() or level not in _TALKATIVE:
        return
    log4j = jvm.packages(spark).org.apache.logging.log4j
    configuration = log4j.core.LoggerContext.getContext(False).getConfiguration()
    loggers = dict(configuration.getLoggers())
    for name in [name for name, logger in loggers.items() if logger.getLevel().name() == "OFF"]:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.getLevel(level))


def is_submitted() -> bool:
    """Whether `spark-submit` started this process, and with it a JVM."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def parse_conf(given: Sequence[str]) -> dict[str, str]:
    """What `--conf NAME=VALUE` means.

    Raises:
        UsageError: not of that form.
    """
    conf = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--conf {text!r} is not NAME=VALUE")
        conf[name] = value
    return conf
