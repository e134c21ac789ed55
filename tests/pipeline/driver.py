"""Jobs of `kohort pipeline` as their users run them, in process groups to be killed as one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pyarrow.parquet

from tests.pipeline.conftest import JAVA_OPTIONS
from tests.pipeline.topics import Row, in_order

TIMEOUT_S = 600
"""A session alone may take a minute on a machine that has much else to do."""

ROOT = Path(__file__).parents[2]


class Driver:
    """A run of the job: Python, and the JVM below it."""

    def __init__(
        self, jars: Path, bootstrap: str, lake: Path, log: Path, *more: str, job: str = "land"
    ) -> None:
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
        command += ["--conf", f"spark.driver.extraJavaOptions={JAVA_OPTIONS}"]
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
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


def table_rows(table: Path) -> list[Row]:
    """The rows of a landed table, as `Topics.read` shows a topic."""
    columns = ["partition", "offset", "timestamp", "key", "value", "headers"]
    return in_order(
        (
            row["partition"],
            row["offset"],
            round(row["timestamp"].timestamp() * 1000),
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in added_rows(table, columns)
    )


def added_rows(table: Path, columns: list[str]) -> list[dict[str, Any]]:
    """Of a Delta table to which rows were only added, by its log and Arrow, without Spark."""
    rows: list[dict[str, Any]] = []
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            assert "remove" not in action
            if "add" in action:
                path = table / action["add"]["path"]
                rows += pyarrow.parquet.ParquetFile(path).read(columns=columns).to_pylist()
    return rows
