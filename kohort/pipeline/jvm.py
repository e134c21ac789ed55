"""The Java side of a session, where Python's side has no door of its own.

Spark Connect has no Java side: jobs that come here need the classic session (docs/pipeline.md).
"""

import subprocess
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import Observation, SparkSession

from kohort.pipeline.errors import UnavailableError

_ENDING_S: Final = 2.0


def packages(spark: SparkSession) -> Any:  # noqa: ANN401 - packages and classes of the JVM, by name.
    """The root of all Java packages.

    Raises:
        UnavailableError: this session has none.
    """
    try:
        return spark.sparkContext._jvm  # noqa: SLF001 - py4j's door, which has no public name.
    except Exception as error:
        raise UnavailableError(
            "this job needs a classic Spark session; over Spark Connect it cannot run"
        ) from error


def is_over(spark: SparkSession) -> bool:
    """Whether the session's JVM has gone, or is about to go."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001 - as above.
    except Exception:  # noqa: BLE001 - py4j has several for a JVM that does not answer.
        return True


def ended(error: Exception) -> str | None:
    """How the JVM that this process has started came to its end; None if it runs, or there is none.

    If `error` is of a JVM that does not answer, its end is waited for a moment.
    """
    gateway = SparkContext._gateway  # noqa: SLF001 - as above.
    process: subprocess.Popen[bytes] | None = getattr(gateway, "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(_ENDING_S if _is_silence(error) else 0)
    except subprocess.TimeoutExpired:
        return None
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _is_silence(error: BaseException | None) -> bool:
    """Whether it, or what it came of, is that no answer came."""
    while error is not None:
        if isinstance(error, OSError | Py4JError) and not isinstance(error, Py4JJavaError):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_observed(observation: Observation) -> bool:
    """Whether an action has told of it; Python's own way to ask waits until one does, for ever."""
    java_observation = observation._jo  # noqa: SLF001 - as above.
    return java_observation is not None and bool(java_observation.future().isCompleted())


def hadoop_configuration(spark: SparkSession) -> Any:  # noqa: ANN401 - as above.
    """Where the session's file systems are configured."""
    return spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - as above.


def delta_log(spark: SparkSession, path: str) -> Any:  # noqa: ANN401 - as above.
    """Delta's own view of the table at a path."""
    session = spark._jsparkSession  # noqa: SLF001 - as above.
    return packages(spark).org.apache.spark.sql.delta.DeltaLog.forTable(session, path)
