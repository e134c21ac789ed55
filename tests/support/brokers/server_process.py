"""A broker in a process of its own: started on a port of its own, awaited, stopped or killed.

The subclasses beside this file say how Kohort (`kohort_server`), Apache Kafka (`kafka_server`) and
a Kafka with secure listeners (`secure_kafka`) start.
"""

import random
import socket
import struct
import subprocess
import time
from abc import ABC, abstractmethod
from collections import deque
from pathlib import Path
from typing import Self

_METADATA_REQUEST = struct.pack(">ihhihi", 14, 3, 1, 1, -1, 0)
"""Metadata v1 for no topics. ApiVersions would not do: Kafka answers it while still fenced."""


_RESERVED_MAX = 200
_reserved: deque[socket.socket] = deque()
"""The UDP sockets that stand for the ports given out last, oldest first."""


def free_port() -> int:
    """A TCP port that is not in use, from below the range that outgoing connections use.

    A Kafka binds it seconds later, and is restarted on it. Other test processes of this machine do
    not get it meanwhile: this one holds the UDP port of that number, which no broker wants, until
    it ends or has asked for many more.
    """
    for _ in range(1_000):
        port = random.SystemRandom().randint(20_000, 32_000)
        mark = socket.socket(type=socket.SOCK_DGRAM)
        try:
            mark.bind(("127.0.0.1", port))
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
        except OSError:
            mark.close()
            continue
        _reserved.append(mark)
        if len(_reserved) > _RESERVED_MAX:
            _reserved.popleft().close()
        return port
    message = "no free port found"
    raise RuntimeError(message)


def answers_metadata(port: int) -> bool:
    """Whether a Metadata answer of the broker on that port lists at least one live broker."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
            connection.sendall(_METADATA_REQUEST)
            head = connection.recv(12, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == 12 and struct.unpack(">iii", head)[2] > 0


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=2).close()
    except OSError:
        return False
    return True


class ServerProcess(ABC):
    """One broker on 127.0.0.1 with its data under `directory`, which survives a restart."""

    clean_exit = 0
    """The exit code after SIGTERM, if all went well."""

    def __init__(self, directory: Path, *, port: int | None = None) -> None:
        self.directory = directory
        self.port = port or free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log_file(self) -> Path:
        return self.directory / "server.log"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @abstractmethod
    def command(self) -> list[str]:
        """The command line; called before each start."""

    def is_ready(self) -> bool:
        return answers_metadata(self.port)

    def start(self, *, timeout_s: float = 180) -> Self:
        """Starts the broker and returns once it answers; else raises with its last words."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + timeout_s
        while not self.is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                tail = self.log_file.read_text(errors="replace")[-4000:]
                message = f"the broker did not start (exit {self._process.returncode}):\n{tail}"
                raise RuntimeError(message)
            time.sleep(0.02)
        return self

    def stop(self, *, timeout_s: float = 30) -> int:
        """Asks it to end (SIGTERM) and returns its exit code."""
        assert self._process is not None
        self._process.terminate()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self) -> None:
        """SIGKILL: what is not in the files now is gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()
