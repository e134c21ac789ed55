"""Group members that say exactly what a test wants, over sockets of their own."""

from collections.abc import Callable

from kohort.protocol.codec import encode_versioned
from kohort.protocol.errors import ErrorCode
from tests.support import messages as m
from tests.support.groups.group_probe import GroupProbe
from tests.support.network.wire import RawClient, framed, request_body, response_in
from tests.support.waiting import wait_until

SYNC_VERSION = 5
NEWEST = 9
Edit = Callable[[bytes], bytes]


def subscription(*topics: str) -> bytes:
    """What a consumer tells its assignor: version 0, no user data."""
    return encode_versioned(m.ConsumerProtocolSubscription(topics=list(topics)), 0)


def share(topic: str, *partitions: int) -> bytes:
    """An assignment of a consumer: version 0, no user data."""
    listed = [m.TopicPartition(topic=topic, partitions=list(partitions))]
    return encode_versioned(m.ConsumerProtocolAssignment(assigned_partitions=listed), 0)


class PendingJoin:
    """A join on a connection of its own, which may be kept waiting."""

    def __init__(
        self, member: "RawMember", request: m.JoinGroupRequest, version: int, edit: Edit
    ) -> None:
        self._member = member
        self._version = version
        self._client = RawClient(member.port)
        self._client.send(framed(edit(request_body(request, version))))

    def answer(self) -> m.JoinGroupResponse:
        """Waits for it; a member that was admitted remembers its id and generation."""
        with self._client:
            answer = response_in(self._client.receive(), m.JoinGroupResponse, self._version)
        self._member.joined(answer)
        return answer


class RawMember:
    """A consumer with the range assignor. Its sessions are long, as no member sends heartbeats that
    does not say otherwise.
    """

    def __init__(
        self,
        port: int,
        group: str,
        *,
        topic: str = "t",
        instance_id: str | None = None,
        session_timeout_ms: int = 60_000,
    ) -> None:
        self.port = port
        self.group = group
        self.instance_id = instance_id
        self.session_timeout_ms = session_timeout_ms
        self.member_id = ""
        self.generation = -1
        self.protocols = {"range": subscription(topic)}

    def join(
        self,
        reason: int = 0,
        *,
        text: str | None = None,
        version: int = NEWEST,
        edit: Edit = bytes,
    ) -> PendingJoin:
        """Sends a join with that reason in the tag; `edit` changes its bytes before they leave."""
        request = m.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[
                m.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in self.protocols.items()
            ],
            reason=text,
            join_reason=reason,
        )
        return PendingJoin(self, request, version, edit)

    def joined(self, answer: m.JoinGroupResponse) -> None:
        if answer.error_code in {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            self.member_id = answer.member_id
        if not answer.error_code:
            self.generation = answer.generation_id

    def arrive(self, reason: int = 0) -> PendingJoin:
        """The first join, with the member id that it takes (KIP-394)."""
        if self.instance_id is None:
            assert self.join(reason).answer().error_code == ErrorCode.MEMBER_ID_REQUIRED
        return self.join(reason)

    def sync(self, assignments: dict[str, bytes] | None = None) -> m.SyncGroupResponse:
        """Waits for the assignment; the leader gives all, by member id."""
        request = m.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                m.SyncGroupRequestAssignment(member_id=member_id, assignment=assignment)
                for member_id, assignment in (assignments or {}).items()
            ],
        )
        with RawClient(self.port) as client:
            return client.call(request, SYNC_VERSION, m.SyncGroupResponse)


def bring_together(probe: GroupProbe, leader: RawMember, follower: RawMember) -> None:
    """The two alone in a new group, in CompletingRebalance, led by the first."""
    assert not leader.arrive().answer().error_code
    waiting = follower.arrive()
    wait_until(lambda: len(probe.describe().members) == 2, "the follower waits in its join")
    assert not leader.join().answer().error_code
    assert waiting.answer().leader == leader.member_id


def settle(leader: RawMember, follower: RawMember) -> None:
    """From CompletingRebalance to Stable."""
    shares = {leader.member_id: share("t", 0), follower.member_id: share("t", 1)}
    assert not leader.sync(shares).error_code
    assert not follower.sync().error_code
