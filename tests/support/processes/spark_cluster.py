"""A Spark cluster on this machine: a master and workers of one core each."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

TIMEOUT_S: Final = 120
_URL: Final = re.compile(r"Starting Spark master at (spark://\S+)")


def spark_home() -> Path:
    import pyspark  # noqa: PLC0415 - slow to import.

    return Path(pyspark.__file__).parent


class Cluster:
    """A master and its workers, each a JVM."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("Master", "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self.url = self._wait(lambda: _URL.search(self.said("Master-0")), "the master")[1]

    def add_worker(self) -> None:
        number = len(self._processes)
        self._start(
            "Worker",
            *("--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"),
            *("--work-dir", str(self._directory / f"work-{number}"), self.url),
        )
        registered = "Successfully registered with master"
        self._wait(lambda: re.search(registered, self.said(f"Worker-{number}")), "a worker")

    def said(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")

    def close(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def _start(self, kind: str, *arguments: str) -> None:
        name = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        log = self._directory / f"{kind}-{len(self._processes)}.log"
        # Executors have Python, and what of Kohort they are sent.
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_NO_DAEMONIZE": "1"}
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(
                    [str(spark_home() / "bin" / "spark-class"), name, *arguments],
                    cwd=self._directory,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
            )

    def _wait(self, look: object, what: str) -> re.Match[str]:
        deadline = time.monotonic() + TIMEOUT_S
        assert callable(look)
        while (found := look()) is None:
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(0.1)
        assert isinstance(found, re.Match)
        return found
