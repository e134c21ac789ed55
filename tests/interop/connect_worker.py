"""A worker of Kafka Connect in distributed mode, and its REST API."""

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.interop.trouble import SESSION_TIMEOUT_MS
from tests.support.brokers.server_process import free_port
from tests.support.processes import java_env

GROUP = "connect-workers"


class ConnectWorker:
    """One of those that share the group; `more` are settings on top of its own."""

    def __init__(self, directory: Path, bootstrap: str, more: Mapping[str, str]) -> None:
        self.name = f"127.0.0.1:{free_port()}"
        self._directory = directory
        self._bootstrap = bootstrap
        self._more = more
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns before it answers."""
        self._directory.mkdir(parents=True, exist_ok=True)
        settings = self._directory / "worker.properties"
        settings.write_text("".join(f"{key}={value}\n" for key, value in self._settings().items()))
        command = [
            *java_env.quick_jvm("apps", "-Xmx256M"),
            *("org.apache.kafka.connect.cli.ConnectDistributed", str(settings)),
        ]
        with (self._directory / "worker.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log)

    def _settings(self) -> dict[str, object]:
        converter = "org.apache.kafka.connect.storage.StringConverter"
        return {
            "bootstrap.servers": self._bootstrap,
            "listeners": f"HTTP://{self.name}",
            "group.id": GROUP,
            "key.converter": converter,
            "value.converter": converter,
            "config.storage.topic": "connect-configs",
            "offset.storage.topic": "connect-offsets",
            "offset.storage.partitions": 1,
            "status.storage.topic": "connect-status",
            "status.storage.partitions": 1,
            **{f"{kind}.storage.replication.factor": 1 for kind in ("config", "offset", "status")},
            "offset.flush.interval.ms": 300,
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 300,
            # What a worker did that has gone is given to others after this time, not after minutes.
            "scheduled.rebalance.max.delay.ms": 1000,
            "plugin.discovery": "SERVICE_LOAD",
            **self._more,
        }

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def is_taken(self, connector: str, config: dict[str, str]) -> bool:
        """Tries to create it once. Raises HTTPError if the worker fails."""
        path = f"/connectors/{connector}/config"
        return self._call("PUT", path, json.dumps(config).encode()) is not None

    def get(self, path: str) -> dict[str, Any] | list[Any] | None:
        """The answer, from JSON; None if it is not there, or not now."""
        return self._call("GET", path)

    def _call(
        self, method: str, path: str, body: bytes | None = None
    ) -> dict[str, Any] | list[Any] | None:
        request = urllib.request.Request(f"http://{self.name}{path}", body, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                found: dict[str, Any] | list[Any] = json.load(answer)
        except urllib.error.HTTPError as refusal:
            # While it starts, and while the group rebalances.
            if refusal.code in {404, 409}:
                return None
            raise
        except OSError:
            return None
        return found
