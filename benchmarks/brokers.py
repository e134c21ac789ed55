"""The contenders: Kohort, and Apache Kafka with the memory and the flags of its own start script.

Both run with the defaults that a user gets who starts them, on a port and in a directory of their
own.
"""

import itertools
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from benchmarks.processes import cpu_s, resident_mib
from benchmarks.profiling import Profiler
from kohort.protocol.codec import codec
from kohort.protocol.messages.api_versions import ApiVersionsResponse
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess, answers_metadata, free_port
from tests.support.processes import java_env

_KAFKA_FLAGS: Final = (
    # What bin/kafka-server-start.sh and bin/kafka-run-class.sh give it.
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)

_API_VERSIONS_REQUEST: Final = struct.pack(">ihhih5s", 15, 18, 0, 7, 5, b"bench")

_POLL_S: Final = 0.001
_START_TIMEOUT_S: Final = 300.0
"""A Kafka that was killed with ten thousand partitions takes a minute or two."""


class RunningBroker:
    """A broker process, timed from before it was started."""

    def __init__(self, server: ServerProcess, profile: Path | None = None) -> None:
        """Start it; `server` says how, and `profile` where its profile goes, if anywhere.

        What is profiled is what it does once it serves.
        """
        server.directory.mkdir(parents=True, exist_ok=True)
        # Kafka's directory is formatted by this, which is not part of its start.
        command = server.command()
        self._server = server
        with server.log_file.open("ab") as log:
            self.started_s = time.perf_counter()
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment()
            )
        self._profile = profile
        self._profiler: Profiler | None = None

    @property
    def port(self) -> int:
        return self._server.port

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_first_answer(self) -> None:
        """Return when an ApiVersions request was answered, rightly and in full."""
        while not _answers_api_versions(self.port):
            self._check_alive()
            time.sleep(_POLL_S)

    def wait_serving(self) -> None:
        """Return when Metadata lists a broker: Kafka answers ApiVersions before it serves."""
        while not answers_metadata(self.port):
            self._check_alive()
            time.sleep(_POLL_S)
        if self._profile is not None and self._profiler is None:
            self._profiler = Profiler(self.pid, self._profile)

    def cpu_s(self) -> float:
        """Processor time used so far, of all threads."""
        return cpu_s(self.pid)

    def resident_mib(self) -> float:
        """Memory in use, shared libraries included."""
        return resident_mib(self.pid)

    def kill(self) -> None:
        """SIGKILL, as when the machine takes what a process has."""
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._profiler is not None:
            self._profiler.finish()

    def _check_alive(self) -> None:
        is_late = time.perf_counter() - self.started_s > _START_TIMEOUT_S
        if is_late or self._process.poll() is not None:
            self._process.kill()
            tail = self._server.log_file.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"the broker did not start:\n{tail}")


class Contender(ABC):
    """A kind of broker."""

    name: str

    @abstractmethod
    def server(self, directory: Path, overrides: Mapping[str, str] | None = None) -> ServerProcess:
        """A broker with its data under `directory`, not started."""

    def start(self, directory: Path, overrides: Mapping[str, str] | None = None) -> RunningBroker:
        return RunningBroker(self.server(directory, overrides))


class Kohort(Contender):
    """Ours. Its metrics are on the port `metrics_port`."""

    name = "Kohort"

    def __init__(self, profiles: Path | None = None) -> None:
        """`profiles` is where the profile of each process goes, under the name of what it does."""
        self.metrics_port = free_port()
        self._profiles = profiles
        self._starts = itertools.count(1)

    def start(self, directory: Path, overrides: Mapping[str, str] | None = None) -> RunningBroker:
        profile = None
        if self._profiles:
            profile = self._profiles / f"{directory.name}-{next(self._starts)}.json"
        return RunningBroker(self.server(directory, overrides), profile)

    def server(self, directory: Path, overrides: Mapping[str, str] | None = None) -> ServerProcess:
        ports = {"kohort.metrics.port": str(self.metrics_port)}
        return KohortServer(directory, overrides={**ports, **(overrides or {})})


class Kafka(Contender):
    """Apache Kafka 4.4.0."""

    name = "Kafka"

    def server(self, directory: Path, overrides: Mapping[str, str] | None = None) -> ServerProcess:
        return _KafkaServer(directory, overrides=overrides)


class _KafkaServer(KafkaServer):
    java_options = _KAFKA_FLAGS


def contenders(*, with_kafka: bool, profiles: Path | None = None) -> list[Contender]:
    """Ours, profiled if wanted, and Kafka if it is wanted and Java and its jars are there."""
    jars = java_env.CACHE / "broker"
    is_there = shutil.which("java") is not None and jars.is_dir()
    kohort = Kohort(profiles)
    return [kohort, Kafka()] if with_kafka and is_there else [kohort]


def _environment() -> dict[str, str]:
    """Ours, but for a setting that makes Python compile every module at every start."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def ask_api_versions(connection: socket.socket) -> bool:
    """Ask once; whether there was a whole answer. Raises RuntimeError if it was a wrong one."""
    connection.sendall(_API_VERSIONS_REQUEST)
    head = connection.recv(8, socket.MSG_WAITALL)
    if len(head) < 8:
        return False
    size, correlation_id = struct.unpack(">ii", head)
    body = connection.recv(size - 4, socket.MSG_WAITALL)
    response, end = codec(ApiVersionsResponse, 0).decode(body)
    if correlation_id != 7 or end != size - 4 or response.error_code or not response.api_keys:
        raise RuntimeError(f"a wrong answer to ApiVersions: {response!r}")
    return True


def _answers_api_versions(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_START_TIMEOUT_S) as connection:
            return ask_api_versions(connection)
    except OSError:
        return False
