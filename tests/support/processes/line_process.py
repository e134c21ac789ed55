"""A process that answers JSON commands line by line, as tests/java/LineServer.java does."""

import json
import subprocess
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self


class RemoteError(Exception):
    """An exception in the process: `name` is its class, such as "TopicExistsException"."""

    def __init__(self, name: str, message: str, trace: str) -> None:
        super().__init__(f"{name}: {message}\n{trace}")
        self.name = name


class LineProcess:
    """Runs the command. Calls may come from several threads.

    What it tells on standard error goes to `log`, or else to where ours goes.
    """

    def __init__(self, command: Sequence[str], *, log: Path | None = None) -> None:
        with nullcontext() if log is None else log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
            )
        self._lock = threading.Lock()

    def call(self, **command: object) -> dict[str, Any]:
        """The answer to one command; an exception over there is raised as `RemoteError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        assert line, f"the process ended with exit code {self._process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RemoteError(answer["error"], answer["message"], answer["trace"])
        return answer

    def kill(self) -> None:
        """SIGKILL: nothing is said to anybody."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Ends the process by ending its input. May follow `kill`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
