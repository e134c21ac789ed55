"""Jobs of `kohort pipeline` as their users run them, in process groups to be killed as one."""

from __future__ import annotations

import contextlib
import gzip
import itertools
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

from tests.pipeline.conftest import JAVA_OPTIONS
from tests.pipeline.topics import Row, in_order

TIMEOUT_S = 600
"""A session alone may take a minute on a machine that has much else to do."""

ROOT = Path(__file__).parents[2]

CLASSES = ROOT / ".cache" / "spark-classes.jsa"
"""What a JVM had loaded when `share_classes` ran: with it a driver starts in half the time."""

LOGS = {"delta": "_delta_log", "iceberg": "metadata"}
"""Where below a table its versions are, by the format of the lake."""


def numbers(directory: Path) -> set[str]:
    """Entries that begin with a number: what Spark, Delta or Iceberg have finished writing."""
    if not directory.exists():
        return set()
    return {path.name for path in directory.iterdir() if path.stem.partition("-")[0].isdigit()}


def share_classes(jars: Path, directory: Path) -> None:
    """Makes the archive CLASSES, by a session that goes through a small history."""
    history, made = directory / "history.jsonl", directory / CLASSES.name
    with gzip.open(ROOT / "examples" / "rebalance-week" / "week.jsonl.gz") as week:
        history.write_bytes(b"".join(itertools.islice(week, 20)))
    command = [sys.executable, "-m", "kohort.cli", "pipeline", "rebalances"]
    command += ["--from", str(history), "--lake", str(directory / "lake"), "--jars", str(jars)]
    options = f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={made} -Xlog:disable"
    command += ["--master", "local[2]", "--conf", f"spark.driver.extraJavaOptions={options}"]
    with (directory / "classes.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    assert process.wait(TIMEOUT_S) == 0
    # The JVM ends a while after Python has, and writes until then.
    deadline = time.monotonic() + TIMEOUT_S
    with contextlib.suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.1)
    shutil.copyfile(made, CLASSES.with_suffix(".new"))
    CLASSES.with_suffix(".new").rename(CLASSES)


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
        command = [sys.executable, "-m", "kohort.cli", "pipeline", job, *more]
        command += ["--lake", str(lake), "--bootstrap-server", bootstrap, "--jars", str(jars)]
        command += ["--master", "local[2]", "--conf", "spark.driver.memory=1g"]
        command += [
            "--conf",
            "spark.ui.enabled=false",
            "--conf",
            "spark.sql.codegen.wholeStage=false",
        ]
        command += ["--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN"]
        # One of other classes than there are now is left alone, without a word.
        shared = f" -XX:SharedArchiveFile={CLASSES} -Xlog:disable" if CLASSES.exists() else ""
        command += ["--conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}{shared}"]
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
        """SIGKILL to Spark's JVM alone, as the kernel does when memory is short."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        for pid in children.split():
            os.kill(int(pid), signal.SIGKILL)

    @property
    def is_over(self) -> bool:
        """Whether it has ended by itself."""
        return self._process.poll() is not None

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
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            tail = self._log.read_text(errors="replace")[-3000:]
            assert self._process.poll() is None, f"ended before {what}:\n{tail}"
            assert time.monotonic() < deadline, f"waited in vain for {what}:\n{tail}"
            time.sleep(0.01)


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
