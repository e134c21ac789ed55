"""An instance of Apicurio Registry, which keeps its schemas in a topic that each instance reads."""

import json
import os
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.interop.foreign.programs import CACHE
from tests.support.brokers.server_process import free_port
from tests.support.processes import java_env


def unpacked() -> Path:
    """The jar of the program, among those that it needs."""
    java_env.fetch("registry")
    place = CACHE / "registry"
    if not place.exists():
        with tarfile.open(java_env.CACHE / "registry" / "registry.tar.gz") as files:
            files.extractall(place, filter="data")
    (program,) = place.glob("*-runner.jar")
    return program


NO_MORE: Final[Mapping[str, str]] = {}


class SchemaRegistry:
    """Keeps its port when it is started again, and nothing else."""

    def __init__(self, directory: Path, bootstrap: str, more: Mapping[str, str] = NO_MORE) -> None:
        """`more` are further settings of the program, under their own names."""
        self._program = unpacked()
        self._log = directory / "registry.log"
        self._port = free_port()
        self._settings = {
            "APICURIO_STORAGE_KIND": "kafkasql",
            "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": bootstrap,
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": f"{self._port}",
        }
        if more:
            # A file: what goes on to Kafka's clients is named by what is behind a prefix.
            settings = directory / "registry.properties"
            settings.parent.mkdir(parents=True, exist_ok=True)
            settings.write_text("".join(f"{name}={text}\n" for name, text in more.items()))
            self._settings["QUARKUS_CONFIG_LOCATIONS"] = str(settings)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it answers as Confluent's does."""
        return f"http://127.0.0.1:{self._port}/apis/ccompat/v7"

    def start(self) -> None:
        """Returns before it answers."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [java_env.java(), "-Xmx512M", *java_env.QUICK_START, "-jar", str(self._program)],
                cwd=self._program.parent,
                env=os.environ | self._settings,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def register(self, subject: str, schema: str) -> bool:
        """Whether it is told to be kept. A second time changes nothing."""
        body = json.dumps({"schema": schema}).encode()
        return self._call(f"/subjects/{subject}/versions", body) is not None

    def schema(self, subject: str) -> str | None:
        """The schema; None if it is not there, or the registry does not answer."""
        found = self._call(f"/subjects/{subject}/versions/1")
        return None if found is None else found["schema"]

    def take_snapshot(self) -> bool:
        """Whether it has told that all it knows is in the topic of snapshots."""
        url = f"http://127.0.0.1:{self._port}/apis/registry/v3/admin/snapshots"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, b""), timeout=30):
                return True
        except OSError:
            return False

    def words(self) -> str:
        """The last of them."""
        return self.said()[-3_000:]

    def said(self) -> str:
        """All that it has logged."""
        return self._log.read_text(errors="replace")

    def has_ended(self) -> bool:
        """Whether it has given up."""
        return self._process is not None and self._process.poll() is not None

    def _call(self, path: str, body: bytes | None = None) -> dict[str, str] | None:
        request = urllib.request.Request(f"{self.url}{path}", body)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                found: dict[str, str] = json.load(answer)
        except OSError:  # HTTPError is one, too.
            return None
        return found
