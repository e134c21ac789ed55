"""The Spark session of a job; master, jars and options come from outside the job.

If `spark-submit` or a notebook started the session, its master and jars are kept, and only the
options that the jobs need are added.
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

from pyspark import SparkConf, SparkContext, accumulators
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
    # Tables must not depend on the time zone of the machine that writes them.
    "spark.sql.session.timeZone": "UTC",
    # Python workers hold several batches in memory, and records may have megabytes.
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
}
"""Spark options that the jobs need. Options that were set explicitly take precedence."""


IN_PYTHON: Final = {
    # Spark only passes rows to and from Python. Generated code and adaptive plans would take more
    # time than they save.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}
"""Spark options for jobs whose work is done by Python workers."""

_WAREHOUSE: Final = "spark.sql.warehouse.dir"
_LOCAL: Final = {
    # With Spark's default, a long history of hundreds of groups spends more time in GC than in
    # analysis.
    "spark.driver.memory": "2g",
    # The jobs report their own progress.
    "spark.ui.showConsoleProgress": "false",
    # A local session listens on 127.0.0.1, independently of the host name.
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    # Spark creates this directory and leaves it empty, because tables are accessed by path. The
    # default is the working directory.
    _WAREHOUSE: str(Path(tempfile.gettempdir(), f"kohort-warehouse-{os.getuid()}")),
}


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
    """Return this process's session; create it if necessary.

    `name` is shown by the cluster. `conf` are Spark's own settings. Missing jars are downloaded to
    `jars_directory` (default: the user's cache), with progress on standard error. `java_options`
    are for the JVM of a local session. With `with_s3`, paths under s3a:// are supported.
    `log_level` is Spark's log level during the start.

    Raises:
        UnavailableError: Java is missing, a jar cannot be downloaded, or the session does not
            start.
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
            # Workers would otherwise use the first python3 on the PATH, which may lack the jobs'
            # packages.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings["spark.jars"] = ",".join(map(str, jars.ensure(jars_directory, with_s3=with_s3)))
    else:
        _prepare_submitted(settings, log_level)
        if master:
            settings["spark.master"] = master
    # py4j logs a stack trace for each unanswered call to the JVM; the job reports it once.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.root.addFilter(_is_not_py4js)
    # The server of accumulators also prints a stack trace when the JVM ends. Spark 4.0 has another
    # name for it.
    for server in ("AccumulatorTCPServer", "AccumulatorServer"):
        if hasattr(accumulators, server):
            getattr(accumulators, server).handle_error = _ignored
    builder = SparkSession.builder.appName(name)
    for key, value in (settings | dict(conf or {})).items():
        builder = builder.config(key, value)
    try:
        with without_java_warnings() if not is_submitted() else nullcontext():
            return builder.getOrCreate()
    except Exception as error:
        raise UnavailableError(
            f"Spark does not start: {error}\nIt needs Java 17 or 21; `java` is here: "
            f"{shutil.which('java') or 'nothing on the PATH'}"
        ) from error


def _ignored(_server: object, _request: object, _address: object) -> None:
    """Ignore a broken connection: the job itself reports that the JVM has ended."""


def _is_not_py4js(record: logging.LogRecord) -> bool:
    """Return False for log records of py4j's gateway, which logs with the root logger."""
    return record.module != "java_gateway"


def _prepare_submitted(settings: dict[str, str], log_level: str) -> None:
    """Set the warehouse directory, and the log level of the JVM that `spark-submit` has started. By
    default, a starting SparkContext logs some ninety lines, and creates the warehouse directory in
    the working directory.
    """
    SparkContext._ensure_initialized()  # noqa: SLF001 - connects to the JVM.
    log4j = SparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001
    log4j.core.config.Configurator.setRootLevel(log4j.Level.getLevel(log_level))
    if not SparkConf().contains(_WAREHOUSE):
        settings[_WAREHOUSE] = _LOCAL[_WAREHOUSE]


def fit_to_machine(spark: SparkSession) -> None:
    """Reduce the default numbers of tasks: Spark's 200 per shuffle, if it runs on one machine, and
    Delta's 50 for reading a table's log. Starting so many tasks takes longer than their work.

    Options that were set explicitly are kept.
    """
    context = spark.sparkContext
    wanted = {_SNAPSHOT_PARTITIONS: 2}
    if (context.master or "").startswith("local"):
        wanted[_SHUFFLE_PARTITIONS] = 2 * context.defaultParallelism
    for name, count in wanted.items():
        if not context.getConf().contains(name):
            spark.conf.set(name, count)


def set_log_level(spark: SparkSession, level: str) -> None:
    """Set Spark's log level; WARN and lower levels turn on the loggers that LOGGING turns off."""
    spark.sparkContext.setLogLevel(level)
    if is_submitted() or level not in _TALKATIVE:
        return
    log4j = jvm.packages(spark).org.apache.logging.log4j
    configuration = log4j.core.LoggerContext.getContext(False).getConfiguration()
    loggers = dict(configuration.getLoggers())
    for name in [name for name, logger in loggers.items() if logger.getLevel().name() == "OFF"]:
        log4j.core.config.Configurator.setLevel(name, log4j.Level.getLevel(level))


def is_submitted() -> bool:
    """Whether `spark-submit` started this process, and a JVM for it."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def parse_conf(given: Sequence[str]) -> dict[str, str]:
    """Parse the values of `--conf NAME=VALUE`.

    Raises:
        UsageError: a value is not NAME=VALUE.
    """
    conf = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise UsageError(f"--conf {text!r} is not NAME=VALUE")
        conf[name] = value
    return conf
