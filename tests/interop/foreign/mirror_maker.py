"""MirrorMaker 2 in its own process: what clusters have is copied to each other."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.interop.trouble import SESSION_TIMEOUT_MS
from tests.support.processes import java_env


class MirrorMaker:
    """It is told what to copy by a file of properties."""

    def __init__(self, directory: Path, properties: str) -> None:
        java_env.fetch("mirror")
        self._directory = directory
        self._properties = properties
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns before it copies."""
        self._directory.mkdir(parents=True, exist_ok=True)
        settings = self._directory / "mirror.properties"
        settings.write_text(self._properties)
        command = [
            *java_env.quick_jvm("mirror", "-Xmx512M"),
            *("org.apache.kafka.connect.mirror.MirrorMaker", str(settings)),
        ]
        with (self._directory / "mirror.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def stop(self) -> None:
        """Stop it as its users do: it ends what it is about."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(60)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def words(self) -> str:
        """The last of them."""
        return (self._directory / "mirror.log").read_text(errors="replace")[-3_000:]


def as_properties(settings: Mapping[str, object]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def both_ways(here: str, there: str) -> str:
    """Two clusters called `here` and `there`, what is committed, each record once; a topic keeps
    its name behind its cluster's.
    """
    settings: dict[str, object] = {
        "clusters": "here, there",
        "topics": "original-.*",
        "replication.factor": 1,
        "emit.heartbeats.enabled": "false",
        "emit.checkpoints.enabled": "false",
        "sync.topic.acls.enabled": "false",
        "refresh.topics.interval.seconds": 2,
        "offset.flush.interval.ms": 300,
        "scheduled.rebalance.max.delay.ms": 1000,
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": 300,
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": "http://127.0.0.1:0",
    }
    for name, other, bootstrap in (("here", "there", here), ("there", "here", there)):
        settings |= {
            f"{name}.bootstrap.servers": bootstrap,
            f"{name}.exactly.once.source.support": "enabled",
            f"{name}.consumer.isolation.level": "read_committed",
            f"{name}->{other}.enabled": "true",
            **{
                f"{kind}.replication.factor": 1
                for kind in ("offset-syncs.topic", "offset.storage", "status.storage")
            },
            "config.storage.replication.factor": 1,
        }
    return as_properties(settings)
