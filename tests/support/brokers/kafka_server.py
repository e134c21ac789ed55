"""A real Apache Kafka 4.4.0: one KRaft node with its own data, from the jars that Maven fetched."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.brokers.server_process import ServerProcess, accepts, free_port
from tests.support.processes import java_env

_CLUSTER_ID = "a29ob3J0LXRlc3RzLTAwMQ"

_AFTER_A_KILL = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
"""A controller takes a broker back when the session of the one that was killed has ended: 9 s."""

_formatted: dict[tuple[str, ...], dict[Path, bytes]] = {}
"""By node id and arguments: the files in a directory that `kafka-storage format` has made."""


class KafkaServer(ServerProcess):
    """`overrides` replace the settings below, which are Kafka's own but for what one node needs."""

    jars: java_env.Kind = "broker"
    clean_exit = 143  # A JVM's way to say SIGTERM.
    format_arguments: Sequence[str] = ()
    """More of them for `kafka-storage format`."""
    java_options: Sequence[str] = ()
    """The JVM's; by default those of the quickest start, in little memory."""
    extra_java_options: Sequence[str] = ()
    """More of them, for a JVM with the default ones."""

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(directory, port=port)
        controller = f"127.0.0.1:{free_port()}"
        self.properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "100",
            # Or groups without offsets and members would vanish in the tenth minute of a run.
            "offsets.retention.check.interval.ms": "86400000",
            **(overrides or {}),
        }

    def command(self) -> list[str]:
        properties = self.directory / "server.properties"
        lines = [f"{name}={value}\n" for name, value in self.properties.items()]
        properties.write_text("".join(lines))
        if not (self.data / "meta.properties").exists():
            self._format(properties)
        return [*self._jvm(), "kafka.Kafka", str(properties)]

    def is_ready(self) -> bool:
        # Kafka opens one listener after another.
        ports = re.findall(r":(\d+)(?:,|$)", self.properties["listeners"])
        return super().is_ready() and all(accepts(int(port)) for port in ports)

    def kill(self) -> None:
        super().kill()
        self.properties |= _AFTER_A_KILL

    def _jvm(self) -> list[str]:
        if self.java_options:
            return java_env.jvm(self.jars, *self.java_options, with_ours=False)
        return java_env.quick_jvm(self.jars, "-Xmx512M", *self.extra_java_options)

    def _format(self, properties: Path) -> None:
        """By a JVM the first time, and then as it came out."""
        key = (self.jars, self.properties["node.id"], *self.format_arguments)
        if key not in _formatted:
            self._run_format(properties)
            _formatted[key] = {
                path.relative_to(self.data): path.read_bytes()
                for path in self.data.rglob("*")
                if path.is_file()
            }
            return
        for name, content in _formatted[key].items():
            path = self.data / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def _run_format(self, properties: Path) -> None:
        subprocess.run(
            [
                *java_env.quick_jvm(self.jars, "-Xmx128M"),
                "kafka.tools.StorageTool",
                "format",
                "--cluster-id",
                _CLUSTER_ID,
                "--config",
                str(properties),
                *self.format_arguments,
            ],
            check=True,
            capture_output=True,
        )


class EarlierKafkaServer(KafkaServer):
    """A 3.9.1."""

    jars: java_env.Kind = "earlier"

    def command(self) -> list[str]:
        java_env.fetch(self.jars)
        return super().command()


class OldestKafkaServer(EarlierKafkaServer):
    """A 2.8.2, the first release without ZooKeeper."""

    jars = "oldest"
