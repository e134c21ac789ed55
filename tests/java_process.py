"""A JVM that answers JSON commands line by line (tests/java/LineServer.java)."""

import json
import subprocess
import threading
from pathlib import Path
from typing import Any, Self

from tests import java_env

_LOG_SETTINGS = Path(__file__).parent / "java" / "log4j2.properties"


class JavaError(Exception):
    """An exception in the JVM: `name` is its class, such as "TopicExistsException"."""

    def __init__(self, name: str, message: str, trace: str) -> None:
        super().__init__(f"{name}: {message}\n{trace}")
        self.name = name


class JavaProcess:
    """One of our main classes on the class path of `kind`. Calls may come from several threads."""

    def __init__(self, main_class: str, kind: java_env.Kind) -> None:
        self._process = subprocess.Popen(
            [
                java_env.java(),
                "-Xmx512M",
                # The shortest start counts, not the best code after an hour.
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                "-Dfile.encoding=UTF-8",
                f"-Dlog4j2.configurationFile={_LOG_SETTINGS}",
                "-cp",
                java_env.classpath(kind),
                main_class,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._lock = threading.Lock()

    def call(self, **command: object) -> dict[str, Any]:
        """The answer to one command; an exception in the JVM is raised as `JavaError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        assert line, f"the JVM ended with exit code {self._process.wait()}"
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise JavaError(answer["error"], answer["message"], answer["trace"])
        return answer

    def close(self) -> None:
        """Ends the JVM by ending its input."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
