"""Small requests over many connections, each of which sends the next when it has its answer.

Frames are prepared, and each connection has a correlation id of its own. The first answer is read
and judged field by field; every later one has to be the same bytes, or is read and judged as well.
"""

import select
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from benchmarks.generator.frames import (
    RECEIVE_BYTES,
    ask,
    connect,
    read_answer,
    receive_frame,
    receive_rest,
    request_frame,
)
from benchmarks.generator.group import Group, Member
from benchmarks.generator.topics import create_topics
from benchmarks.harness import Measured
from benchmarks.processes import cpu_s
from kohort.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kohort.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kohort.protocol.messages.membership import HeartbeatRequest, HeartbeatResponse
from kohort.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kohort.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kohort.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)

_OFFSET: Final = 4_711
_WARM_ROUNDS: Final = 20


class Kind(NamedTuple):
    """What is asked, and whether an answer is right."""

    version: int
    answer: type[Any]
    ask: Callable[["Scene", int], Any]
    """The request of the connection with that number."""
    is_right: Callable[["Scene", Any], bool]
    needs_members: bool = False


class Scene:
    """What there is on the broker that is asked."""

    def __init__(self, port: int, name: str, connections: int, *, needs_members: bool) -> None:
        self.port = port
        self.group_id = self.topic = name
        self.members: list[Member] = []
        create_topics(port, [self.topic])
        self._group: Group | None = None
        if needs_members:
            self._group = Group(port, self.group_id)
            self._group.open(connections)
            self._group.come(self._group.members)
            self.members = self._group.settle_quietly()
            self.sockets = [member.connection for member in self.members]
        else:
            self.sockets = [connect(port) for _ in range(connections)]

    def commit(self, member: Member) -> OffsetCommitRequest:
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=_OFFSET, committed_metadata=""
        )
        return OffsetCommitRequest(
            group_id=self.group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id,
            topics=[OffsetCommitRequestTopic(name=self.topic, partitions=[partition])],
        )

    def committed(self) -> OffsetFetchRequest:
        topic = OffsetFetchRequestTopic(name=self.topic, partition_indexes=[0])
        group = OffsetFetchRequestGroup(group_id=self.group_id, topics=[topic])
        return OffsetFetchRequest(groups=[group])

    def close(self) -> None:
        """With the last look at whether what was committed is there."""
        if self._group is not None:
            self._group.close()
        else:
            for connection in self.sockets:
                connection.close()


def _heartbeat(scene: Scene, number: int) -> HeartbeatRequest:
    member = scene.members[number]
    return HeartbeatRequest(
        group_id=scene.group_id, generation_id=member.generation, member_id=member.member_id
    )


def _is_committed(_: Scene, answer: OffsetFetchResponse) -> bool:
    group = answer.groups[0]
    return not group.error_code and group.topics[0].partitions[0].committed_offset == _OFFSET


def _is_described(scene: Scene, answer: MetadataResponse) -> bool:
    (topic,) = answer.topics
    return not topic.error_code and topic.name == scene.topic and len(topic.partitions) == 1


KINDS: Final[dict[str, Kind]] = {
    "Heartbeat": Kind(
        4, HeartbeatResponse, _heartbeat, lambda _, answer: not answer.error_code, True
    ),
    "OffsetFetch": Kind(
        9, OffsetFetchResponse, lambda scene, _: scene.committed(), _is_committed, True
    ),
    "FindCoordinator": Kind(
        4,
        FindCoordinatorResponse,
        lambda scene, _: FindCoordinatorRequest(coordinator_keys=[scene.group_id]),
        lambda scene, answer: (
            not answer.coordinators[0].error_code and answer.coordinators[0].port == scene.port
        ),
    ),
    "Metadata": Kind(
        12,
        MetadataResponse,
        lambda scene, _: MetadataRequest(topics=[MetadataRequestTopic(name=scene.topic)]),
        _is_described,
    ),
    "ApiVersions": Kind(
        4,
        ApiVersionsResponse,
        lambda *_: ApiVersionsRequest(client_software_name="bench", client_software_version="1"),
        lambda _, answer: not answer.error_code and len(answer.api_keys) > 20,
    ),
    "OffsetCommit": Kind(
        9,
        OffsetCommitResponse,
        lambda scene, number: scene.commit(scene.members[number]),
        lambda _, answer: not answer.topics[0].partitions[0].error_code,
        True,
    ),
}


def run(port: int, pid: int, request: str, name: str, connections: int, seconds: float) -> Measured:
    """Requests per second, and the server's processor time for each.

    `name` is of a topic and a group that do not exist yet.
    """
    kind = KINDS[request]
    scene = Scene(port, name, connections, needs_members=kind.needs_members)
    if kind.needs_members:
        committing, commit = scene.sockets[0], scene.commit(scene.members[0])
        ask(committing, commit, OffsetCommitResponse, KINDS["OffsetCommit"].version)
    frames = [
        request_frame(kind.ask(scene, number), kind.version, number)
        for number in range(connections)
    ]

    def check_answer(frame: bytes, number: int) -> None:
        answer = read_answer(frame, kind.answer, kind.version)
        is_own = int.from_bytes(frame[4:8], "big") == number
        if not is_own or not kind.is_right(scene, answer):
            raise RuntimeError(f"a wrong answer to {request}: {answer!r}")

    calls = Calls(scene.sockets, frames, check_answer)
    calls.repeat(rounds=_WARM_ROUNDS)
    server_s, own_s, began_s = cpu_s(pid), time.process_time(), time.perf_counter()
    count = calls.repeat(seconds=seconds)
    took_s = time.perf_counter() - began_s
    own_s, server_s = time.process_time() - own_s, cpu_s(pid) - server_s
    if kind.needs_members:
        found = ask(scene.sockets[0], scene.committed(), OffsetFetchResponse, 9)
        if not _is_committed(scene, found):
            raise RuntimeError(f"what was committed is not there: {found!r}")
    scene.close()
    return {
        "rate": count / took_s,
        "cpu": server_s / count * 1e6,
        "generator": own_s / took_s * 100,
    }


class Calls:
    """A request for each of some connections, to be repeated."""

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        frames: Sequence[bytes],
        check_answer: Callable[[bytes, int], None],
    ) -> None:
        """`check_answer` takes an answer and its connection's number; raises if it is wrong."""
        self._check_answer = check_answer
        self._poll = select.epoll()
        self._lines: dict[int, tuple[socket.socket, bytes, bytes, int]] = {}
        for number, (connection, frame) in enumerate(zip(sockets, frames, strict=True)):
            connection.sendall(frame)
            answer = receive_frame(connection)
            check_answer(answer, number)
            self._poll.register(connection, select.EPOLLIN)
            self._lines[connection.fileno()] = connection, frame, answer, number

    def repeat(self, *, rounds: int = 0, seconds: float = 0.0) -> int:
        """Ask so many times on each connection, or for so long; return how often that was."""
        count, lines, wait = 0, self._lines, self._poll.poll
        count_max = rounds * len(lines) if rounds else 1 << 60
        until_s = time.perf_counter() + seconds if seconds else float("inf")
        for connection, frame, _, _ in lines.values():
            connection.send(frame)
        while count < count_max - len(lines) and time.perf_counter() < until_s:
            for descriptor, _ in wait():
                connection, frame, answer, number = lines[descriptor]
                received = connection.recv(RECEIVE_BYTES)
                if received != answer:
                    # Kafka's ApiVersions tells how far its metadata has come, which changes.
                    received = receive_rest(connection, received)
                    self._check_answer(received, number)
                    lines[descriptor] = connection, frame, received, number
                connection.send(frame)
                count += 1
        for connection, _, _, number in lines.values():
            self._check_answer(receive_frame(connection), number)
        return count + len(lines)
