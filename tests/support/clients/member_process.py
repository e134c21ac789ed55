"""A group member of any library in a process of its own, which a test may kill, pause and resume.

`python -m tests.support.clients.member_process LIBRARY BOOTSTRAP` is that process for the
libraries of Python. It answers what tests/java/ClientDriver.java answers to "join", "take" and
"leave".
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from tests.support.clients.aiokafka_client import AiokafkaClient
from tests.support.clients.confluent_client import ConfluentClient
from tests.support.clients.java_client import JavaClient
from tests.support.clients.kafka_python_client import KafkaPythonClient
from tests.support.clients.model import Client, Member, Seat
from tests.support.clients.remote_member import RemoteMember, to_json
from tests.support.processes.java_process import JavaProcess
from tests.support.processes.line_process import LineProcess
from tests.support.processes.line_server import serve

_LIBRARIES: Mapping[str, Callable[[str], Client]] = {
    "aiokafka": AiokafkaClient,
    "confluent": ConfluentClient,
    "kafka-python": KafkaPythonClient,
}


class MemberProcess:
    def __init__(self, library: str, bootstrap: str) -> None:
        self._library = library
        self._bootstrap = bootstrap
        self._process = (
            JavaProcess("ClientDriver", "broker")
            if library == "java"
            else LineProcess([sys.executable, "-m", __name__, library, bootstrap])
        )
        self._member: RemoteMember | None = None

    @property
    def member(self) -> RemoteMember:
        assert self._member is not None, "join first"
        return self._member

    def join(self, group: str, topic: str, seat: Seat) -> RemoteMember:
        """Returns before the group has let it in."""
        self._member = self._join(group, topic, seat)
        return self._member

    def _join(self, group: str, topic: str, seat: Seat) -> RemoteMember:
        if isinstance(self._process, JavaProcess):
            return JavaClient(self._bootstrap, self._process).join(group, topic, seat)
        self._process.call(op="join", group=group, topic=topic, seat=asdict(seat))
        return RemoteMember(self._process, "the only one")

    def pause(self) -> None:
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def kill(self) -> None:
        """What it had read, as far as the test has asked for it, stays in `member`."""
        self._process.kill()
        self.member.lost()

    def close(self) -> None:
        """Ends it; its group is not told, unless the member has left before."""
        self._process.kill()
        self._process.close()


class _Server:
    """The other end of `RemoteMember`, with its one member."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._member: Member | None = None
        self._told = 0
        """How many of the member's records the test has."""

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        if command["op"] == "join":
            seat = Seat(**command["seat"])
            self._member = self._client.join(command["group"], command["topic"], seat)
            return {}
        assert self._member is not None, "join first"
        if command["op"] == "leave":
            self._member.leave()
        assigned = self._member.assigned()
        news = self._member.records()[self._told :]
        self._told += len(news)
        return {
            "assigned": [["", partition] for partition in assigned],
            "records": [to_json(record) for record in news],
        }


if __name__ == "__main__":
    serve(_Server(_LIBRARIES[sys.argv[1]](sys.argv[2])).answer)
