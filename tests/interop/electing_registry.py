"""A schema registry in little, of which each instance is a process of its own.

As Confluent's and Karapace do it: the instances are a group of the type "sr", whose leader names
the one that writes; what it writes lies in a compacted topic, which all of them read. They make
that of what their client libraries have for groups of any type: here it is kafka-python's.

`python -m tests.interop.electing_registry BOOTSTRAP NAME` is an instance.
"""

import json
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kafka.coordinator.base import BaseCoordinator
from kafka.errors import KafkaError
from kafka.net.compat import KafkaNetClient

from tests.interop.trouble import SESSION_TIMEOUT_MS
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.model import Record
from tests.support.processes.line_process import LineProcess
from tests.support.processes.line_server import serve

TOPIC: Final = "_schemas"
GROUP: Final = "schema-registry"


class RegistryProcess:
    """The test's side of an instance."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.name = name
        self._command = [sys.executable, "-m", __name__, bootstrap, name]
        self._process = LineProcess(self._command)

    def restart(self) -> None:
        self.close()
        self._process = LineProcess(self._command)

    def writer(self) -> str | None:
        """The name of the instance that writes, as this one knows it; None: not at the moment."""
        found: str | None = self._process.call(op="writer")["writer"]
        return found

    def register(self, subject: str, schema: str) -> int | None:
        """The version's id; None if another instance writes."""
        found: int | None = self._process.call(op="register", subject=subject, schema=schema)["id"]
        return found

    def schemas(self) -> dict[str, str]:
        """The last schema of each subject."""
        found: dict[str, str] = self._process.call(op="schemas")["schemas"]
        return found

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """Ends it at once; it does not leave the group."""
        self._process.kill()
        self._process.close()


class Election(BaseCoordinator):  # type: ignore[misc] # It has no types.
    """A member of the group, which knows who writes."""

    def __init__(self, client: KafkaNetClient, name: str) -> None:
        super().__init__(
            client,
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=300,
            max_poll_interval_ms=10_000,
            api_version=client._manager.broker_version,
        )
        self._name = name
        self.writer: str | None = None
        self.elections = 0
        """How many it has taken part in."""

    def protocol_type(self) -> str:
        return "sr"

    def group_protocols(self) -> list[tuple[str, bytes]]:
        return [("v0", json.dumps({"version": 1, "name": self._name}).encode())]

    def _perform_assignment(
        self, leader_id: str, protocol: str, members: Sequence[Any]
    ) -> Mapping[str, bytes]:
        del leader_id, protocol
        names = {one.member_id: json.loads(one.metadata)["name"] for one in members}
        chosen = json.dumps({"error": 0, "writer": min(names.values())}).encode()
        return dict.fromkeys(names, chosen)

    async def _on_join_prepare_async(
        self, generation: int, member_id: str, timeout_ms: float | None = None
    ) -> None:
        del generation, member_id, timeout_ms
        self.writer = None

    async def _on_join_complete_async(
        self, generation: int, member_id: str, protocol: str, member_assignment_bytes: bytes
    ) -> None:
        del generation, member_id, protocol
        self.elections += 1
        self.writer = json.loads(member_assignment_bytes)["writer"]


class Registry:
    """An instance."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self._name = name
        self._client = ConfluentClient(bootstrap)
        self._last_id = 0
        self._read_in = 0
        """The election since which all that there was has been read."""
        network = KafkaNetClient(bootstrap_servers=bootstrap)
        network._net.start()
        network._manager.bootstrap(30_000)
        self._election = Election(network, name)
        threading.Thread(target=self._take_part, daemon=True).start()

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        match command["op"]:
            case "writer":
                return {"writer": self._election.writer}
            case "register":
                return {"id": self._register(command["subject"], command["schema"])}
            case _:
                return {"schemas": {key: schema for key, (_, schema) in self._read().items()}}

    def _take_part(self) -> None:
        while True:
            try:
                self._election.ensure_active_group(timeout_ms=1_000)
                self._election.poll_heartbeat()
            except KafkaError as error:
                print(error, file=sys.stderr)
            time.sleep(0.1)

    def _register(self, subject: str, schema: str) -> int | None:
        if self._election.writer != self._name:
            return None
        elections = self._election.elections
        if self._read_in != elections:
            self._last_id = max((number for number, _ in self._read().values()), default=0)
            self._read_in = elections
        self._last_id += 1
        value = json.dumps({"subject": subject, "id": self._last_id, "schema": schema})
        self._client.produce(TOPIC, [Record(value.encode(), key=subject.encode())])
        return self._last_id

    def _read(self) -> dict[str, tuple[int, str]]:
        """All that lies in the topic now, as every start reads it."""
        schemas = {}
        for record in self._client.read_to_end(TOPIC, "read_uncommitted"):
            found = json.loads(record.value or b"")
            schemas[found["subject"]] = found["id"], found["schema"]
        return schemas


if __name__ == "__main__":
    serve(Registry(*sys.argv[1:]).answer)
