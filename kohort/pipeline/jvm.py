"""Access to the JVM of a Spark session without Spark Connect, for functions that PySpark lacks."""

import subprocess
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import Observation, SparkSession

from kohort.pipeline.errors import UnavailableError

_ENDING_S: Final = 2.0


def packages(spark: SparkSession) -> Any:  # noqa: ANN401 - Java packages and classes, by name.
    """Return the root of all Java packages.

    Raises:
        UnavailableError: the session has no JVM.
    """
    try:
        return spark.sparkContext._jvm  # noqa: SLF001 - py4j has no public name for it.
    except Exception as error:
        raise UnavailableError(
            "this job needs a classic Spark session, not Spark Connect"
        ) from error


def is_over(spark: SparkSession) -> bool:
    """Whether the session's JVM has ended, or is ending."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())  # noqa: SLF001 - as above.
    except Exception:  # noqa: BLE001 - py4j has several exceptions for a silent JVM.
        return True


def ended(error: Exception) -> str | None:
    """Return how the JVM that this process started ended; None if it is running, or another process
    started it.

    If `error` shows that the JVM does not answer, wait briefly for its end.
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
    """Whether the error, or one of its causes, says that the JVM did not respond."""
    while error is not None:
        if isinstance(error, OSError | Py4JError) and not isinstance(error, Py4JJavaError):
            return True
        error = error.__cause__ or error.__context__
    return False


def is_observed(observation: Observation) -> bool:
    """Whether an action has completed the observation; unlike `Observation.get`, does not wait."""
    java_observation = observation._jo  # noqa: SLF001 - as above.
    return java_observation is not None and bool(java_observation.future().isCompleted())


def hadoop_configuration(spark: SparkSession) -> Any:  # noqa: ANN401 - as above.
    return spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - as above.
