"""Kohort in a process of its own, forked from one that has imported it; to be killed often."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from kohort.protocol.codec import STRICT_OPTION
from tests.support.brokers.forking import WAIT
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import answers_metadata


class ForkedKohort(KohortServer):
    """A `KohortServer` with a start in a tenth of the time; the process that forks lives on."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        overrides: Mapping[str, str] | None = None,
        module: str = "tests.support.brokers.forking",
        arguments: Sequence[str] = (),
    ) -> None:
        """`module` is run with these arguments in front of the settings."""
        super().__init__(directory, port=port, overrides=overrides)
        self._module = module
        self._arguments = list(arguments)
        self._forking: subprocess.Popen[str] | None = None
        self._pid = 0

    @property
    def pid(self) -> int:
        assert self._pid, "it does not run"
        return self._pid

    def command(self) -> list[str]:
        settings = [f"{name}={value}" for name, value in self.overrides.items()]
        return [
            *(sys.executable, "-X", STRICT_OPTION, "-m", self._module),
            *self._arguments,
            *settings,
        ]

    def start(self, *, timeout_s: float = 180) -> Self:
        if self._forking is None:
            self.directory.mkdir(parents=True, exist_ok=True)
            with self.log_file.open("ab") as log:
                self._forking = subprocess.Popen(
                    self.command(),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
        self._pid = self._ask("start")
        deadline_s = time.monotonic() + timeout_s
        while not answers_metadata(self.port):
            if not self._is_alive() or time.monotonic() > deadline_s:
                tail = self.log_file.read_text(errors="replace")[-4000:]
                message = f"the broker did not start:\n{tail}"
                raise RuntimeError(message)
            time.sleep(0.005)
        return self

    def stop(self, *, timeout_s: float = 30) -> int:
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def __exit__(self, *exception: object) -> None:
        if self._forking is not None:
            if self._pid and self._is_alive():
                self.stop()
            self._forking.communicate()
        self.check_codecs()

    def _end(self, how: signal.Signals) -> int:
        os.kill(self.pid, how)
        self._pid = 0
        return self._ask(WAIT)

    def _is_alive(self) -> bool:
        """Whether it is running; a zombie is not."""
        try:
            state = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return False
        return state != "Z"

    def _ask(self, line: str) -> int:
        forking = self._forking
        assert forking is not None
        assert forking.stdin is not None
        assert forking.stdout is not None
        forking.stdin.write(f"{line}\n")
        forking.stdin.flush()
        answer = forking.stdout.readline()
        if not answer:
            tail = self.log_file.read_text(errors="replace")[-4000:]
            message = f"there is no process to fork the broker:\n{tail}"
            raise RuntimeError(message)
        return int(answer)
