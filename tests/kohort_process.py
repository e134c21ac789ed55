"""Kohort as its users run it: a process of its own, on a port and a data directory of its own."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

READY_SECONDS_MAX = 30.0
STOP_SECONDS_MAX = 20.0

_API_VERSIONS_V0 = bytes.fromhex("0000000a 0012 0000 00000001 ffff".replace(" ", ""))


def free_port() -> int:
    """A port of the loopback interface that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def answers_api_versions(port: int, *, timeout: float = 1.0) -> bool:
    """Whether a broker on the loopback port answers a request."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout) as connection:
            connection.sendall(_API_VERSIONS_V0)
            return len(connection.recv(4)) == 4
    except OSError:
        return False


class KohortProcess:
    """One broker; may be killed and started again on the same port and data."""

    def __init__(
        self, data: Path, *, overrides: Mapping[str, str] | None = None, port: int | None = None
    ) -> None:
        self.data = data
        self.port = port or free_port()
        self.overrides = dict(overrides or {})
        self.log_path = data.parent / f"{data.name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def command(self) -> list[str]:
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data),
            "kohort.metrics.port": "0",
            **self.overrides,
        }
        overrides = [
            part for name in settings for part in ("--override", f"{name}={settings[name]}")
        ]
        return [sys.executable, "-m", "broker", *overrides]

    def start(self) -> KohortProcess:
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + READY_SECONDS_MAX
        while not answers_api_versions(self.port):
            assert self._process.poll() is None, f"the broker ended during start:\n{self.log()}"
            assert time.monotonic() < deadline, f"the broker does not answer:\n{self.log()}"
            time.sleep(0.02)
        return self

    def kill(self) -> None:
        """As a crash of the process: no chance to clean up."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """SIGTERM, as an operator would; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_SECONDS_MAX)

    def close(self) -> None:
        """Leave nothing behind, whatever state the process is in."""
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """What the broker has written to its standard output and error."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def rss_bytes(self) -> int:
        """Resident memory of the process."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * 4096
