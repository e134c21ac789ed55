"""Jobs of `kohort pipeline` as their users run them, in process groups to be killed as one."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet

from kohort.pipeline.jars import locked
from tests.pipeline.spark_settings import JAVA_OPTIONS
from tests.pipeline.topics import Row, Topics, in_order
from tests.support.brokers.kohort_server import KohortServer
from tests.support.waiting import wait_until

TIMEOUT_S = 600
"""A session alone may take a minute on a machine that has much else to do."""

ROOT = Path(__file__).parents[2]

JOBS = (sys.executable, "-m", "kohort.cli", "pipeline")
"""What a command for one of the jobs begins with."""

CLASSES = ROOT / ".cache" / "spark-classes.jsa"
"""What a JVM had loaded when `share_classes` ran: with it a driver starts in half the time."""

LOGS = {"delta": "_delta_log", "iceberg": "metadata"}
"""Where below a table its versions are, by the format of the lake."""


def numbers(directory: Path) -> set[str]:
    """Entries that begin with a number: what Spark, Delta or Iceberg have finished writing."""
    try:
        names = [entry.name for entry in os.scandir(directory)]
    except FileNotFoundError:
        return set()
    # A hundred times a second, beside what is waited for: without a Path for each.
    return {name for name in names if (name.rpartition(".")[0] or name).partition("-")[0].isdigit()}


def quick_start(jars: Path, *options: str) -> list[str]:
    """Arguments of `kohort pipeline` for a JVM that starts soon, and ends soon after.

    Spark gives what `spark.jars` names a class loader of its own, of whose classes a JVM has no
    archive; those of the class path come from there as Spark's do.
    """
    path = ":".join(str(jars / jar.file_name) for jar in locked())
    # What has to grow, heap and metadata of classes, is collected whole again and again.
    memory = "-Xms512m -Xmn256m -XX:MetaspaceSize=256m"
    conf = {
        "spark.driver.memory": "1g",
        "spark.driver.extraClassPath": path,
        "spark.driver.extraJavaOptions": " ".join([JAVA_OPTIONS, memory, *options]),
        "spark.ui.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    arguments = ["--jars", str(jars), "--master", "local[2]"]
    for name, value in conf.items():
        arguments += ["--conf", f"{name}={value}"]
    return arguments


def has_shared_classes(jars: Path) -> bool:
    """Whether the archive is there, newer than these jars and what is said of it here."""
    sources = (Path(__file__), *(jars / jar.file_name for jar in locked()))
    return CLASSES.exists() and CLASSES.stat().st_mtime > max(
        path.stat().st_mtime for path in sources
    )


def share_classes(jars: Path, directory: Path) -> None:
    """Makes the archive CLASSES, by a session that lands a topic in two batches.

    It has the classes of Kafka's clients, of streaming queries and of Delta, which are most of what
    any of these jobs loads.
    """
    made = directory / CLASSES.name
    with KohortServer(directory / "broker") as broker:
        topics = Topics(broker.bootstrap)
        topic = topics.create(2)
        topics.produce(topic, 40, partitions=2)
        command = [*JOBS, "land", topic]
        command += ["--available-now", "--max-offsets-per-trigger", "20"]
        command += ["--lake", str(directory / "lake"), "--bootstrap-server", broker.bootstrap]
        command += quick_start(jars, f"-XX:ArchiveClassesAtExit={made}", "-Xlog:disable")
        _run_to_the_end(command, directory / "classes.log")
    # Two sessions of tests may make it at once.
    complete = CLASSES.with_suffix(f".{os.getpid()}")
    shutil.copyfile(made, complete)
    complete.rename(CLASSES)


def run_job(environment: Mapping[str, str], job: str, *arguments: str) -> str:
    """Run a job to its end, with `environment` on top of what there is.

    Returns what it has told on its way.
    """
    done = subprocess.run(
        [*JOBS, job, *arguments],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return done.stderr


def _run_to_the_end(command: list[str], log: Path) -> None:
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    assert process.wait(TIMEOUT_S) == 0, log.read_text()[-3000:]
    # The JVM ends a while after Python has, and writes until then.
    deadline = time.monotonic() + TIMEOUT_S
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.1)


class Driver:
    """A run of the job: Python, and the JVM below it."""

    def __init__(
        self,
        jars: Path,
        bootstrap: str,
        lake: Path | str,
        log: Path,
        *more: str,
        job: str = "land",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """With `environment`, that on top of what there is."""
        command = [*JOBS, job, *more]
        command += ["--lake", str(lake), "--bootstrap-server", bootstrap]
        # One of other classes than there are now is left alone, without a word.
        archive = (f"-XX:SharedArchiveFile={CLASSES}", "-Xlog:disable") if CLASSES.exists() else ()
        command += quick_start(jars, *archive)
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | dict(environment or {}),
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL to all of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_jvm(self) -> None:
        """SIGKILL to Spark's JVM alone, as the kernel does when memory is short.

        Does nothing if the driver has ended.
        """
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            task = Path(f"/proc/{self._process.pid}/task/{self._process.pid}")
            for pid in (task / "children").read_text().split():
                os.kill(int(pid), signal.SIGKILL)

    def terminate(self) -> int:
        """SIGTERM, as a scheduler sends it; returns the exit code."""
        self._process.terminate()
        return self._process.wait(TIMEOUT_S)

    def terminate_all(self) -> int:
        """SIGTERM to Spark's JVM as well, as a service manager sends it; the same."""
        os.killpg(self._process.pid, signal.SIGTERM)
        return self._process.wait(TIMEOUT_S)

    def wait(self) -> int:
        """The exit code, when it has ended by itself."""
        return self._process.wait(TIMEOUT_S)

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Raises with what the driver said if it has ended, or if it takes for ever."""

        def holds() -> bool:
            if condition():
                return True
            assert self._process.poll() is None, f"ended before {what}:\n{self._tail()}"
            return False

        wait_until(holds, lambda: f"{what}:\n{self._tail()}", timeout_s=TIMEOUT_S, pause_s=0.01)

    def _tail(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


def wait_for_news(driver: Driver, directory: Path, before: set[str]) -> None:
    driver.wait_until(lambda: bool(numbers(directory) - before), "rows of this round")


LANDED = ["partition", "offset", "timestamp", "key", "value", "headers"]


def table_rows(lake: Path, table: str) -> list[Row]:
    """The rows of a landed table, as `Topics.read` shows a topic."""
    return as_in_topic(added_rows(lake / table, LANDED))


def iceberg_rows(lake: Path, table: str) -> list[Row]:
    """The same of Iceberg's, by its catalog and Arrow, without Spark."""
    from kohort.pipeline.iceberg.catalogs import Tables  # noqa: PLC0415 - an extra.

    files = Tables(str(lake), None).get(table).scan().plan_files()
    paths = [file.file.file_path.removeprefix("file://") for file in files]
    # Row by row as the files are: what reads them is not what wrote the table.
    return as_in_topic(
        row
        for path in paths
        for row in pyarrow.parquet.ParquetFile(path).read(columns=LANDED).to_pylist()
    )


def as_in_topic(rows: Iterable[dict[str, Any]]) -> list[Row]:
    """Rows of a landed table, as `Topics.read` shows a topic."""
    return in_order(
        (
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in rows
    )


def added_rows(table: Path, columns: list[str]) -> list[dict[str, Any]]:
    """Rows of a Delta table to which rows were only added, by its log and Arrow, without Spark."""
    rows: list[dict[str, Any]] = []
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            assert "remove" not in action
            if "add" in action:
                path = table / action["add"]["path"]
                rows += pyarrow.parquet.ParquetFile(path).read(columns=columns).to_pylist()
    return rows
