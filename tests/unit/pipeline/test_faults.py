"""What Spark's exceptions come to in words."""

import pytest

from kohort.insight.errors import ReportedError
from kohort.pipeline.errors import ConflictError, RegistryError, UnavailableError

FAILED = """Job aborted due to stage failure: Task 0 in stage 65.0 failed 1 times: \
[TASK_WRITE_FAILED] Task failed while writing rows to file:/lake/partitions.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError
Caused by: java.io.IOException: {}
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
"""

OF_WORKER = """An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/opt/spark/python/pyspark/worker.py", line 1, in main
    process()
  File "/tmp/kohort.zip/kohort/protocol/primitives.py", line 3, in <module>
    import construct
ModuleNotFoundError: No module named 'construct'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException
"""


@pytest.mark.parametrize(
    ("text", "kind", "told"),
    [
        (
            FAILED.format("Input/output error"),
            ReportedError,
            "; caused by java.io.IOException: Input/output error",
        ),
        (FAILED.format("No space left on device"), UnavailableError, "the disk is full"),
        ("[DELTA_CONCURRENT_APPEND] Files were added", ConflictError, "another run changed it"),
        (
            OF_WORKER,
            ReportedError,
            "a Python worker raised ModuleNotFoundError: No module named 'construct'",
        ),
        (
            OF_WORKER.replace(
                "ModuleNotFoundError: ", f"{RegistryError.__module__}.RegistryError: "
            ),
            ReportedError,
            "the table: No module named 'construct'",
        ),
        ("InvalidTopicException: Invalid topics: [a b]", ReportedError, "invalid topic name"),
    ],
)
def test_the_reason_is_told(text: str, kind: type[ReportedError], told: str) -> None:
    pyspark_errors = pytest.importorskip("pyspark.errors")
    from kohort.pipeline.faults import explain  # noqa: PLC0415

    error = explain("the table", pyspark_errors.PySparkException(text))

    assert type(error) is kind
    assert str(error).startswith("the table: ")
    assert told in str(error)
    assert "\n" not in str(error)
