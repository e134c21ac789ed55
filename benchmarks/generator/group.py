"""One classic group with all its members, each on a connection of its own.

What the members answer is prepared before it is asked for: ids are handed out one round before the
join, so that a leader's assignment and everybody's SyncGroup exist when the last JoinGroup is sent.
From then on the generator copies a generation into a frame, and is not what is waited for.
"""

import heapq
import select
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from benchmarks.generator.frames import (
    CLIENT_ID,
    RECEIVE_BYTES,
    ask,
    connect,
    read_answer,
    request_frame,
)
from benchmarks.harness import Measured
from benchmarks.processes import cpu_s, resident_mib
from kohort.protocol.codec import encode_versioned
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from kohort.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kohort.protocol.messages.membership import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

FIND, HEARTBEAT, JOIN, LEAVE, SYNC = 4, 4, 9, 5, 5
"""The versions, all flexible."""

SESSION_MS: Final = 45_000
_REBALANCE_MS: Final = 60_000
_TIMEOUT_S: Final = 180
_PROTOCOL: Final = "range"
_TOPIC: Final = "bench-group"

_NOT_YET: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}

_ERROR: Final = struct.Struct(">h")
_GENERATION: Final = struct.Struct(">i")
_ERROR_AT: Final = 13
"""After the size, the correlation id, no tags, and the throttle time."""
_GENERATION_AT: Final = 15
_OK_BEAT: Final = struct.pack(">iibihb", 12, 1, 0, 0, 0, 0)


class Member:
    """One consumer. It has one request on its way, or none."""

    def __init__(self, port: int, group_id: str, number: int) -> None:
        self.connection = connect(port)
        self.number = number
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.is_gone = False
        self.on_answer: Callable[[bytes], None] = _refuse
        self.received = bytearray()
        """The received part of an answer."""
        self.joined = self.synced = b""
        """The last answers."""
        self.join = b""
        self._group_id = group_id
        self._beat, self._sync = bytearray(), bytearray()
        self._generation_at = 14 + len(CLIENT_ID) + 2 + len(group_id)
        self.first_join = request_frame(self._join_request(), JOIN)

    @property
    def assignment(self) -> bytes:
        share = ConsumerProtocolAssignment(
            assigned_partitions=[TopicPartition(topic=_TOPIC, partitions=[self.number])]
        )
        return encode_versioned(share, 0)

    def take_id(self, member_id: str) -> None:
        """Prepare what needs the id."""
        self.member_id = member_id
        self.join = request_frame(self._join_request(), JOIN)
        beat = HeartbeatRequest(group_id=self._group_id, generation_id=0, member_id=member_id)
        self._beat = bytearray(request_frame(beat, HEARTBEAT))
        self._sync = bytearray(request_frame(self.sync_request(0, ()), SYNC))

    def beat(self) -> bytes | bytearray:
        _GENERATION.pack_into(self._beat, self._generation_at, self.generation)
        return self._beat

    def sync(self) -> bytes | bytearray:
        _GENERATION.pack_into(self._sync, self._generation_at, self.generation)
        return self._sync

    def sync_request(
        self, generation: int, shares: Sequence[SyncGroupRequestAssignment]
    ) -> SyncGroupRequest:
        return SyncGroupRequest(
            group_id=self._group_id,
            generation_id=generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
            assignments=list(shares),
        )

    def _join_request(self) -> JoinGroupRequest:
        wish = encode_versioned(ConsumerProtocolSubscription(topics=[_TOPIC]), 0)
        return JoinGroupRequest(
            group_id=self._group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=wish)],
        )


class Group:
    """Live it through with `live`; the moments that count are kept."""

    def __init__(self, port: int, group_id: str, heartbeat_s: float = 3.0) -> None:
        self._port = port
        self.group_id = group_id
        self._heartbeat_s = heartbeat_s
        self.members: list[Member] = []
        self._by_descriptor: dict[int, Member] = {}
        self._poll = select.epoll()
        self._beats: list[tuple[float, int, Member]] = []
        self._synced: Counter[int] = Counter()
        """How many members have their assignment, by generation."""
        self._left: bytes | None = None
        self._leader_ends = b""
        self.generation = -1
        self.last_join_s = self.settled_s = 0.0

    def open(self, count: int) -> None:
        """Connect so many more members, each after it has asked for the coordinator."""
        request = FindCoordinatorRequest(coordinator_keys=[self.group_id])
        for number in range(len(self.members), len(self.members) + count):
            member = Member(self._port, self.group_id, number)
            while True:
                found = ask(member.connection, request, FindCoordinatorResponse, FIND)
                if not found.coordinators[0].error_code:
                    break
                time.sleep(0.05)
            member.connection.setblocking(False)
            self.members.append(member)
            self._by_descriptor[member.connection.fileno()] = member
            self._poll.register(member.connection, select.EPOLLIN)

    def come(self, members: Sequence[Member]) -> None:
        """Have these join, and return when everybody is settled."""
        for member in members:
            self._send(member, member.first_join, self._take_id_of(member))
        self._run_until(lambda: all(member.member_id for member in members))
        self._prepare_assignment()
        for member in members:
            self._join(member)
        self._settle()

    def leave(self) -> float:
        """Have one leave that is not the leader; return when it did, once all are settled."""
        leaver = next(member for member in reversed(self.members) if not member.is_leader)
        identity = MemberIdentity(member_id=leaver.member_id)
        request = LeaveGroupRequest(group_id=self.group_id, members=[identity])
        self.members.remove(leaver)
        self._prepare_assignment()
        self._wait_answered(leaver)
        leaver.is_gone = True
        began_s = time.perf_counter()
        self._send(leaver, request_frame(request, LEAVE), self._take_left)
        self._settle()
        self._forget(leaver)
        return began_s

    def live(self, seconds: float) -> None:
        """Send heartbeats for a while."""
        until_s = time.perf_counter() + seconds
        self._run_until(lambda: time.perf_counter() >= until_s)

    def settle_quietly(self) -> list[Member]:
        """Stop the heartbeats; hand out the members with nothing on its way to them."""
        self._beats.clear()
        for member in self.members:
            self._wait_answered(member)
            member.connection.setblocking(True)
        return self.members

    def close(self) -> None:
        """All leave, in one request."""
        members = [MemberIdentity(member_id=member.member_id) for member in self.members]
        request = LeaveGroupRequest(group_id=self.group_id, members=members)
        with connect(self._port) as connection:
            left = ask(connection, request, LeaveGroupResponse, LEAVE)
        wrong = {one.error_code for one in left.members} | {left.error_code}
        if wrong != {ErrorCode.NONE} or len(left.members) != len(members):
            raise RuntimeError(f"members could not leave: {wrong}")
        for member in [*self.members]:
            self._forget(member)

    # Answers.

    def _take_id_of(self, member: Member) -> Callable[[bytes], None]:
        def take(frame: bytes) -> None:
            answer = read_answer(frame, JoinGroupResponse, JOIN)
            if answer.error_code in _NOT_YET:
                time.sleep(0.05)  # Kafka makes its offsets topic when it is first wanted.
                self._send(member, member.first_join, take)
                return
            if answer.error_code != ErrorCode.MEMBER_ID_REQUIRED:
                raise RuntimeError(f"a first join was answered {answer!r}")
            member.take_id(answer.member_id)

        return take

    def _join(self, member: Member) -> None:
        self.last_join_s = time.perf_counter()
        self._send(member, member.join, lambda frame: self._take_joined(member, frame))

    def _take_joined(self, member: Member, frame: bytes) -> None:
        error = _ERROR.unpack_from(frame, _ERROR_AT)[0]
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join(member)
            return
        if error:
            raise RuntimeError(f"a join failed: {ErrorCode(error)!r}")
        member.generation = _GENERATION.unpack_from(frame, _GENERATION_AT)[0]
        member.joined = frame
        # The leader's name comes after two short strings, and is the member's own where it leads.
        member.is_leader = frame.count(member.member_id.encode(), 0, 400) > 1
        sync = self._leaders_sync(member) if member.is_leader else member.sync()
        self._send(member, sync, lambda answer: self._take_synced(member, answer))

    def _take_synced(self, member: Member, frame: bytes) -> None:
        error = _ERROR.unpack_from(frame, _ERROR_AT)[0]
        if error == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join(member)
            return
        if error:
            raise RuntimeError(f"a sync failed: {ErrorCode(error)!r}")
        member.synced = frame
        self.settled_s = time.perf_counter()
        self._synced[member.generation] += 1
        spread_s = self._heartbeat_s * (1 + member.number / len(self.members)) / 2
        self._beat_at(self.settled_s + spread_s, member)

    def _take_beat(self, member: Member, frame: bytes, sent_s: float) -> None:
        if frame == _OK_BEAT:
            self._beat_at(sent_s + self._heartbeat_s, member)
            return
        error = _ERROR.unpack_from(frame, _ERROR_AT)[0]
        if error != ErrorCode.REBALANCE_IN_PROGRESS:
            raise RuntimeError(f"a heartbeat failed: {ErrorCode(error)!r}")
        self._join(member)

    def _take_left(self, frame: bytes) -> None:
        left = read_answer(frame, LeaveGroupResponse, LEAVE)
        if left.error_code or left.members[0].error_code:
            raise RuntimeError(f"a member could not leave: {left!r}")

    # The assignment.

    def _prepare_assignment(self) -> None:
        """What stands behind the leader's own fields in its SyncGroup."""
        shares = [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=member.assignment)
            for member in self.members
        ]
        first = self.members[0]
        without = len(request_frame(first.sync_request(0, ()), SYNC)) - 2
        self._leader_ends = request_frame(first.sync_request(0, shares), SYNC)[without:]

    def _leaders_sync(self, leader: Member) -> bytes:
        # Neither the size, nor the empty list, nor the end.
        frame = bytes(leader.sync()[4:-2]) + self._leader_ends
        return len(frame).to_bytes(4, "big") + frame

    def check(self) -> None:
        """Everybody has what was meant for it, in one generation, and the leader knew of all."""
        for member in self.members:
            answer = read_answer(member.synced, SyncGroupResponse, SYNC)
            if bytes(answer.assignment) != member.assignment:
                raise RuntimeError("a member has somebody else's assignment")
            if member.generation != self.generation:
                raise RuntimeError("members are in different generations")
        (leader,) = (member for member in self.members if member.is_leader)
        listed = {one.member_id for one in self._read_joined(leader).members}
        if listed != {member.member_id for member in self.members}:
            raise RuntimeError(f"the leader was told of {len(listed)} members")

    def _read_joined(self, member: Member) -> JoinGroupResponse:
        return read_answer(member.joined, JoinGroupResponse, JOIN)

    # The loop.

    def _send(
        self, member: Member, frame: bytes | bytearray, on_answer: Callable[[bytes], None]
    ) -> None:
        member.on_answer = on_answer
        try:
            sent = member.connection.send(frame)
        except BlockingIOError:
            sent = 0
        if sent < len(frame):
            # A large assignment; the rest goes as fast as the broker takes it.
            member.connection.settimeout(_TIMEOUT_S)
            member.connection.sendall(frame[sent:])
            member.connection.setblocking(False)

    def _settle(self) -> None:
        before = self.generation
        self._synced = Counter()

        def is_settled() -> bool:
            newest = max(self._synced, default=-1)
            return newest > before and self._synced[newest] == len(self.members)

        self._run_until(is_settled)
        self.generation = max(self._synced)
        self.check()

    def _wait_answered(self, member: Member) -> None:
        self._run_until(lambda: member.on_answer is _refuse)

    def _run_until(self, is_over: Callable[[], bool]) -> None:
        late_s = time.perf_counter() + _TIMEOUT_S
        while not is_over():
            now_s = time.perf_counter()
            if now_s > late_s:
                raise RuntimeError("the group did not settle")
            self._send_beats(now_s)
            wait_s = self._beats[0][0] - now_s if self._beats else 0.1
            for descriptor, _ in self._poll.poll(min(0.1, max(0.0, wait_s))):
                self._receive(self._by_descriptor[descriptor])

    def _receive(self, member: Member) -> None:
        data: bytes | bytearray = member.connection.recv(RECEIVE_BYTES)
        if not data:
            raise RuntimeError("the broker closed a member's connection")
        if member.received:
            member.received += data
            data = member.received
        if len(data) < 4 or int.from_bytes(data[:4], "big") + 4 > len(data):
            member.received = bytearray(data)
            return
        member.received = bytearray()
        on_answer, member.on_answer = member.on_answer, _refuse
        on_answer(bytes(data))

    def _beat_at(self, due_s: float, member: Member) -> None:
        heapq.heappush(self._beats, (due_s, member.number, member))

    def _send_beats(self, now_s: float) -> None:
        while self._beats and self._beats[0][0] <= now_s:
            member = heapq.heappop(self._beats)[2]
            if not member.is_gone and member.on_answer is _refuse:
                self._send(
                    member,
                    member.beat(),
                    lambda frame, member=member, sent_s=now_s: self._take_beat(  # type: ignore[misc]
                        member, frame, sent_s
                    ),
                )

    def _forget(self, member: Member) -> None:
        self._poll.unregister(member.connection)
        del self._by_descriptor[member.connection.fileno()]
        member.connection.close()
        if member in self.members:
            self.members.remove(member)


def _refuse(_: bytes) -> None:
    raise RuntimeError("an answer to no request")


def run(port: int, pid: int, group_id: str, size: int, heartbeat_s: float) -> Measured:
    """A group comes together, loses a member, and gets another one."""
    group = Group(port, group_id, heartbeat_s)
    group.open(size)
    connected_cpu_s = cpu_s(pid)
    began_s = time.perf_counter()
    group.come(group.members)
    measured = _phase(group, "cold", began_s)
    measured["cold cpu"] = (cpu_s(pid) - connected_cpu_s) * 1e3
    group.live(heartbeat_s)
    before_s = cpu_s(pid)
    measured |= _phase(group, "leave", group.leave())
    measured["leave cpu"] = (cpu_s(pid) - before_s) * 1e3
    group.live(heartbeat_s)
    group.open(1)
    before_s, began_s = cpu_s(pid), time.perf_counter()
    group.come(group.members[-1:])
    measured |= _phase(group, "join", began_s)
    measured["join cpu"] = (cpu_s(pid) - before_s) * 1e3
    group.settle_quietly()
    group.close()
    return measured


def memory(port: int, pid: int, group_ids: list[str], size: int) -> Measured:
    """What a member takes beside its connection.

    The first of the two groups is small, and loads what all need.
    """
    member_kib = 0.0
    for group_id, count in zip(group_ids, (10, size), strict=True):
        group = Group(port, group_id)
        group.open(count)
        before_mib = resident_mib(pid)
        group.come(group.members)
        member_kib = (resident_mib(pid) - before_mib) * 1_024 / count
        group.settle_quietly()
        group.close()
    return {"member": member_kib}


def _phase(group: Group, name: str, began_s: float) -> dict[str, float]:
    return {
        f"{name} total": (group.settled_s - began_s) * 1e3,
        f"{name} after last join": (group.settled_s - group.last_join_s) * 1e3,
    }
