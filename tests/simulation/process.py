"""A client process: it speaks real frames on one connection, one request at a time, as well-behaved
clients do. What happens to it (crashes, slowness, lost connections) is the world's doing.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from kohort.protocol.errors import ErrorCode
from kohort.protocol.framing import ExpectedAnswer, decode_response_at, encode_request
from kohort.protocol.join_reason import JoinReason
from tests.simulation.assigning import (
    COOPERATIVE,
    RANGE,
    TOPIC,
    assign,
    partitions_in,
    share,
    subscription,
)
from tests.simulation.network import Wire
from tests.support import messages as m

if TYPE_CHECKING:
    from tests.simulation.world import World

SYNC_VERSIONS = {3: 2, 4: 2, 5: 3, 6: 4, 7: 5, 8: 5, 9: 5}
"""By the version of JoinGroup that a client of the time spoke."""
HEARTBEAT_VERSIONS = {3: 2, 4: 2, 5: 3, 6: 4, 7: 4, 8: 4, 9: 4}
RETRY_MS = 300
"""Wait before a lost connection is made again, and before an error is retried."""
TEXTS = {
    JoinReason.TOPIC_METADATA_CHANGE: "cached metadata has changed from ... to ...",
    JoinReason.PARTITIONS_REVOKED: "need to revoke partitions and re-join",
    JoinReason.ENFORCED: "rebalance enforced by user",
    JoinReason.GROUP_REBALANCING: "group is already rebalancing",
}
"""Reasons as the Java client says them (KIP-800)."""


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What does not change while a process lives, nor when it is started again."""

    group: str
    client_id: str
    ip: str
    instance: str | None = None
    version: int = 9
    """The version of JoinGroup."""
    says_reasons: bool = False
    """In tag 7728; it needs version 6."""
    is_cooperative: bool = False
    offers_both: bool = False
    """A second assignor beside the first."""
    session_ms: int
    rebalance_ms: int
    heartbeat_ms: int
    slowness_ms: int = 0
    """Between being told of a rebalance and joining it."""


class Caller(Protocol):
    number: int


@dataclass(eq=False)
class Call:
    process: Caller
    request: Any
    expected: ExpectedAnswer
    sent_ms: int
    on_answer: Callable[[Any], None]
    generation: int = -1
    """The generation that the process believed in."""

    def read(self, frame: bytes) -> Any:  # noqa: ANN401 - whatever answers the request.
        """The answer in a frame, its size included."""
        answer, end = decode_response_at(frame, 4, self.expected)
        assert end == len(frame)
        return answer


@dataclass(eq=False, repr=False)
class Process:
    world: "World"
    traits: Traits
    number: int
    """Never used for another process."""
    reason: JoinReason = JoinReason.UNKNOWN
    """The reason that its next join states."""
    topics: tuple[str, ...] = (TOPIC,)
    member_id: str = ""
    generation: int = -1
    owned: list[int] | None = None
    """Its partitions; None while it takes part in a rebalance, or in nothing."""
    is_alive: bool = True
    is_frozen: bool = False
    """Does nothing for a while: a pause of garbage collection, a suspended machine."""
    is_busy: bool = False
    """Its application does not poll: it sends heartbeats, and commits nothing."""
    dies_when_joined: bool = False
    """Between the answer to its next join and its sync."""
    needs_join: bool = True
    """Until it has been given its share of a generation."""
    joined: m.JoinGroupResponse | None = None
    """The answer to its last join."""
    wire: Wire | None = None
    call: Call | None = None
    """The request that is not answered."""
    _received: bytearray = field(default_factory=bytearray)
    _correlation_id: int = 0
    _missed: list[Callable[[], None]] = field(default_factory=list)
    """What has happened while it was frozen."""
    _is_told: bool = False
    """Whether it was told of a rebalance that it has not joined yet."""

    # What happens to it.

    def start(self) -> None:
        self._beat_later()
        self._join()

    def crash(self, *, silently: bool) -> None:
        """The process is gone; if silently, with its machine."""
        self.is_alive = False
        if self.wire is not None:
            if silently:
                self.wire.go_silent()
            else:
                self.wire.hang_up()
        self.wire = self.call = None
        self.owned = None

    def leave(self) -> None:
        """Stop in good order. What is not answered yet is left unread."""
        if self.wire is None or self.call is not None or not self.member_id:
            self.crash(silently=False)
            return
        identity = m.MemberIdentity(
            member_id=self.member_id, group_instance_id=self.traits.instance, reason="closing"
        )
        version = {3: 1, 4: 2, 5: 3, 6: 4}.get(self.traits.version, 5)
        request = m.LeaveGroupRequest(
            group_id=self.traits.group,
            member_id=self.member_id if version < 3 else "",
            members=[identity] if version >= 3 else [],
        )
        self._send(request, version, lambda _: None)
        self.crash(silently=False)

    def lose_connection(self) -> None:
        if self.wire is not None:
            self.wire.cut()

    def freeze(self, duration_ms: int) -> None:
        self.is_frozen = True
        self.world.later(duration_ms, self._thaw)

    def rejoin(self, reason: JoinReason) -> bool:
        """Join again though it was not asked to; False if it is busy with something else."""
        if not self.is_settled:
            return False
        self.reason = reason
        self._join()
        return True

    @property
    def is_settled(self) -> bool:
        """A member of a generation, with nothing under way."""
        return (
            self.is_alive
            and not self.is_frozen
            and not self.needs_join
            and self.call is None
            and self.wire is not None
            and not self._is_told
        )

    # Requests.

    def _join(self) -> None:
        if not self.is_alive or self.call is not None:
            return
        self._is_told = False
        self.needs_join = True
        traits, reason = self.traits, self.reason
        says_tag = traits.says_reasons and traits.version >= 6
        request = m.JoinGroupRequest(
            group_id=traits.group,
            session_timeout_ms=traits.session_ms,
            rebalance_timeout_ms=traits.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=traits.instance,
            protocol_type="consumer",
            protocols=self._protocols(),
            reason=TEXTS.get(reason) if traits.version >= 8 else None,
            join_reason=int(reason) if says_tag else 0,
        )
        if not traits.is_cooperative:
            self.owned = None
        self._send(request, traits.version, self._on_joined)

    def _protocols(self) -> list[m.JoinGroupRequestProtocol]:
        is_cooperative = self.traits.is_cooperative
        # An eager member has given everything up before it joins.
        owned = (self.owned or []) if is_cooperative else []
        data = subscription(self.topics, owned, self.generation if owned else -1)
        names = [COOPERATIVE if is_cooperative else RANGE]
        if self.traits.offers_both:
            names.append("spare")
        return [m.JoinGroupRequestProtocol(name=name, metadata=data) for name in names]

    def _on_joined(self, answer: m.JoinGroupResponse) -> None:
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.NONE:
            self.reason = JoinReason.UNKNOWN
            self.member_id, self.generation = answer.member_id, answer.generation_id
            self.joined = answer
            if self.dies_when_joined:
                self.crash(silently=False)
            else:
                self._sync()
        elif error is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        else:
            self._on_error(error)

    def _sync(self) -> None:
        answer = self.joined
        assert answer is not None
        leads = answer.leader == self.member_id and not answer.skip_assignment
        shares: dict[str, list[int]] = {}
        if leads:
            assert answer.members
            metadata = {member.member_id: member.metadata for member in answer.members}
            name, turn = answer.protocol_name or "", self.world.next_turn()
            shares = assign(name, metadata, turn, self.world.partition_count)
        request = m.SyncGroupRequest(
            group_id=self.traits.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.traits.instance,
            protocol_type="consumer",
            protocol_name=answer.protocol_name,
            assignments=[
                m.SyncGroupRequestAssignment(member_id=member_id, assignment=share(partitions))
                for member_id, partitions in shares.items()
            ],
        )
        if SYNC_VERSIONS[self.traits.version] < 3:
            request.group_instance_id = None
        self._send(request, SYNC_VERSIONS[self.traits.version], self._on_synced)

    def _on_synced(self, answer: m.SyncGroupResponse) -> None:
        error = ErrorCode(answer.error_code)
        if error:
            self._on_error(error)
            return
        self.needs_join = False
        before = self.owned or []
        self.owned = partitions_in(answer.assignment)
        self.world.witness.saw_assignment(self, self.owned)
        if self.traits.is_cooperative and set(before) - set(self.owned):
            self.reason = JoinReason.PARTITIONS_REVOKED
            self._give_up()

    def _give_up(self) -> None:
        """Cooperative members join again once they are done with what was taken from them."""
        self._join()

    def _beat(self) -> None:
        if not self.is_alive:
            return
        self._beat_later()
        if self.is_frozen or self.call is not None or self.wire is None:
            return
        if self.needs_join:
            return
        if self._may_commit and self.world.chance.random() < self.world.commits:
            self.world.commit_of(self)
            return
        traits = self.traits
        request = m.HeartbeatRequest(
            group_id=traits.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=traits.instance,
        )
        version = HEARTBEAT_VERSIONS[traits.version]
        if version < 3:
            request.group_instance_id = None
        self._send(request, version, self._on_beaten)

    @property
    def _may_commit(self) -> bool:
        """Consumers commit what they own, also when they give it up."""
        if self.world.commits_owned:
            return bool(self.owned) and not self.is_busy
        return not self._is_told

    def _on_beaten(self, answer: m.HeartbeatResponse) -> None:
        error = ErrorCode(answer.error_code)
        if error:
            self._on_error(error)

    def _on_error(self, error: ErrorCode) -> None:
        """Handle the error as the Java client does."""
        match error:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                if not self._is_told:
                    self._is_told = True
                    self.world.later(self.traits.slowness_ms, self._take_part)
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                if error is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.member_id = ""
                self.generation, self.owned = -1, None
                self.reason = JoinReason.MEMBERSHIP_LOST
                self.needs_join = True
                self._join()
            case ErrorCode.FENCED_INSTANCE_ID:
                assert self.traits.instance is not None
                self.crash(silently=False)
            case ErrorCode.INCONSISTENT_GROUP_PROTOCOL | ErrorCode.GROUP_MAX_SIZE_REACHED:
                self.crash(silently=False)
            case (
                ErrorCode.NOT_COORDINATOR
                | ErrorCode.COORDINATOR_NOT_AVAILABLE
                | ErrorCode.UNKNOWN_SERVER_ERROR
                | ErrorCode.REQUEST_TIMED_OUT
            ):
                self.world.later(RETRY_MS, self._go_on)
            case _:
                raise AssertionError(f"{self} was told {error.name}")

    def _take_part(self) -> None:
        if self.is_alive and self._is_told and self.call is None and not self.is_frozen:
            if not self.reason:
                self.reason = JoinReason.GROUP_REBALANCING
            self._join()
        elif self.is_alive and self._is_told:
            self.world.later(RETRY_MS, self._take_part)

    def _go_on(self) -> None:
        """After an interruption: do again what was not done."""
        if not self.is_alive or self.call is not None:
            return
        if self.is_frozen:
            self._missed.append(self._go_on)
        elif self.needs_join:
            # A sync that was not answered may have been for a generation that is gone; joining
            # again is always right.
            self._join()
        elif self.wire is None:
            self._connect()

    # The connection.

    def _connect(self) -> None:
        self._received.clear()
        self.wire = self.world.network.connect(self, self.traits.ip)

    def _send(self, request: Any, version: int, on_answer: Callable[[Any], None]) -> None:  # noqa: ANN401
        if self.wire is None:
            self._connect()
        assert self.wire is not None
        assert self.call is None
        self._correlation_id += 1
        parts, expected = encode_request(
            request, version, self._correlation_id, self.traits.client_id
        )
        now_ms = self.world.clock.monotonic_ms()
        self.call = Call(self, request, expected, now_ms, on_answer, self.generation)
        self.wire.send(b"".join(parts), self.call)

    def send(self, request: Any, version: int, on_answer: Callable[[Any], None]) -> None:  # noqa: ANN401
        """For the world; the process must not be waiting for an answer."""
        self._send(request, version, on_answer)

    def received(self, data: bytes) -> None:
        if not self.is_alive:
            return
        if self.is_frozen:
            self._missed.append(lambda: self.received(data))
            return
        self._received += data
        while len(self._received) >= 4:
            (size,) = struct.unpack_from(">i", self._received)
            if len(self._received) < 4 + size:
                return
            frame = bytes(self._received[: 4 + size])
            del self._received[: 4 + size]
            call, self.call = self.call, None
            assert call is not None, f"{self} got an answer that it does not wait for"
            self.world.witness.saw_answer(call)
            call.on_answer(call.read(frame))

    def disconnected(self) -> None:
        if self.is_frozen:
            self._missed.append(self.disconnected)
            return
        self.wire = self.call = None
        if self.is_alive:
            self.world.later(RETRY_MS, self._go_on)

    # Time.

    def _beat_later(self) -> None:
        self.world.later(self.traits.heartbeat_ms, self._beat)

    def _thaw(self) -> None:
        self.is_frozen = False
        missed, self._missed = self._missed, []
        for act in missed:
            act()

    def __repr__(self) -> str:
        kind = self.traits.instance or "dynamic"
        return f"process {self.number} ({self.traits.client_id}, {kind})"


__all__ = ["Call", "Process", "Traits"]
