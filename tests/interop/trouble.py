"""A group whose members run in processes of their own, on a broker whose history can be asked."""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from confluent_kafka.admin import NewTopic

from tests.interop.streams import Stream, streaming
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess, free_port
from tests.support.clients.confluent_client import ConfluentClient, admin_client, create_topics
from tests.support.clients.member_process import MemberProcess
from tests.support.clients.model import Seat
from tests.support.clients.remote_member import RemoteMember
from tests.support.groups.group_probe import GroupProbe
from tests.support.processes.line_process import RemoteError
from tests.support.waiting import wait_until

SESSION_TIMEOUT_MS = 5_000
"""Session timeout of members to die by it: many heartbeats long, still something to wait for."""

LONG_SESSION_MS = 30_000
"""Session timeout of members that are not to die by it."""

PARTITIONS = 12

NO_MORE: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class Scene:
    """A broker, where its clients find it, and its HTTP port if it is a Kohort."""

    server: ServerProcess
    bootstrap: str
    http_port: int | None

    def exactly_once_streams(self, application_id: str) -> dict[str, object]:
        """Settings of a Kafka Streams application that is to be killed, and tells every result."""
        return {
            "bootstrap.servers": self.bootstrap,
            "application.id": application_id,
            "processing.guarantee": "exactly_once_v2",
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": 300,
            "commit.interval.ms": 100,
            "num.stream.threads": 1,
            # Not the last one of an interval alone.
            "statestore.cache.max.bytes": 0,
            "reconnect.backoff.max.ms": 200,
        }

    @contextmanager
    def troop(self) -> Iterator["Troop"]:
        """A group of its own on a topic of its own."""
        name = f"trouble-{uuid.uuid4().hex[:12]}"
        admin = admin_client(self.bootstrap)
        create_topics(admin, NewTopic(name, PARTITIONS, 1))
        probe = GroupProbe(self.server.port, name, self.http_port)
        with Troop(probe, self.bootstrap, name) as troop:
            yield troop


@contextmanager
def scene(
    directory: Path,
    kind: type[KafkaServer | KohortServer],
    *,
    proxy_port: int | None = None,
    more: Mapping[str, str] = NO_MORE,
) -> Iterator[Scene]:
    """With a proxy's port, that is where clients are sent; `more` are settings of the broker."""
    http_port = free_port() if kind is KohortServer else None
    overrides = {"group.min.session.timeout.ms": "1000", **more}
    if http_port:
        overrides["kohort.metrics.port"] = str(http_port)
    if proxy_port:
        overrides["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{proxy_port}"
    with kind(directory, overrides=overrides) as server:
        bootstrap = f"127.0.0.1:{proxy_port}" if proxy_port else server.bootstrap
        yield Scene(server, bootstrap, http_port)


class Troop:
    """The members of one group. Who has gone keeps what it had read."""

    def __init__(self, probe: GroupProbe, bootstrap: str, topic: str) -> None:
        self.probe = probe
        self._bootstrap = bootstrap
        self._topic = topic
        self._stack = ExitStack()
        self.now: dict[str, MemberProcess] = {}
        self.ever: list[RemoteMember] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    def start(
        self,
        libraries: Sequence[str],
        *,
        instance_id: str | None = None,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> list[str]:
        """Members of these libraries join; returns their client ids."""
        names = []
        for library in libraries:
            process = MemberProcess(library, self._bootstrap)
            self._stack.callback(process.close)
            name = f"{len(self.ever)}-{library}"
            self.ever.append(
                process.join(
                    self.probe.group,
                    self._topic,
                    Seat(name, instance_id, session_timeout_ms=session_timeout_ms),
                )
            )
            self.now[name] = process
            names.append(name)
        return names

    @contextmanager
    def streaming(self) -> Iterator[Stream]:
        """Records flow to the topic; at the end of the context each of them has been read."""
        client = ConfluentClient(self._bootstrap)
        with streaming(client, self._topic, PARTITIONS) as stream:
            yield stream
        self._wait_nothing_lost(stream)

    def leave(self, name: str) -> None:
        self.now.pop(name).member.leave()

    def kill(self, name: str) -> None:
        """Notes what it has read, then ends it without a word to the broker."""
        process = self.now.pop(name)
        process.member.records()
        process.kill()

    def wait_failed(self, name: str) -> RemoteError:
        """Until it can go on no longer; returns why."""
        member = self.now.pop(name).member
        failures: list[RemoteError] = []

        def has_failed() -> bool:
            try:
                member.assigned()
            except RemoteError as failure:
                failures.append(failure)
            return bool(failures)

        wait_until(has_failed, f"{name} to fail")
        member.lost()
        return failures[0]

    def wait_shared(self, *, without: str = "") -> None:
        """Until the members hold all partitions, each some of them and none twice."""
        members = [process.member for name, process in self.now.items() if name != without]

        def is_so() -> bool:
            held = [member.assigned() for member in members]
            everything = [partition for partitions in held for partition in partitions]
            return all(held) and sorted(everything) == list(range(PARTITIONS))

        wait_until(is_so, lambda: f"{[member.assigned() for member in members]}")
        self.probe.wait_stable(len(members))

    def _wait_nothing_lost(self, stream: Stream) -> None:
        """Until each record has been read by somebody. More than once is no fault: members that are
        killed do not commit.
        """

        def missing() -> set[bytes]:
            read = {record.value for member in self.ever for record in member.records()}
            return set(stream.sent) - read

        wait_until(lambda: not missing(), lambda: f"never read: {sorted(map(str, missing()))[:9]}")

    def last_sequence(self) -> int:
        """The last sequence of a group that is stable; 0 without a history."""
        return self.probe.wait_told()["sequence"] if self.probe.has_history else 0

    def check_told(self, after: int, expected: Sequence[tuple[str, str]]) -> None:
        """The history names these causes and client ids, one rebalance each, in this order.

        Every sentence is printed, for who runs the test to read.
        """
        if not self.probe.has_history:
            return
        self.probe.wait_records(len(expected), after=after)
        print(self.probe.why(after=after))
        assert self.probe.causes(after=after) == list(expected)
