"""What scripts about groups are made of: groups with the same id at both brokers, and members."""

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kohort.protocol.errors import ErrorCode
from kohort.protocol.message import Struct
from kohort.protocol.messages.membership import MemberIdentity
from tests.interop.same_answers.ages import NEWEST, Age
from tests.interop.same_answers.deliberate import Difference
from tests.interop.same_answers.each import Value, each, for_broker
from tests.interop.same_answers.pair import Answers, Line, Pair, Pending
from tests.interop.same_answers.scenes import fresh_name
from tests.support import messages as m

NO_COORDINATOR: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
EVENTUALLY_S: Final = 60
MEMBERS_LEAVE_SINCE: Final = 3


def subscription(*topics: str, user_data: bytes = b"") -> bytes:
    """Metadata of the `consumer` protocol type."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    owned = struct.pack(">i", 0)
    head = struct.pack(">hi", 1, len(topics))
    return head + names + struct.pack(">i", len(user_data)) + user_data + owned


def plus(generation: Value, change: int) -> Value:
    """Each broker's generation, or what follows it."""
    return each(*(for_broker(generation, name) + change for name in ("kafka", "kohort")))


class Group:
    """A group that no other test uses, which need not exist."""

    def __init__(
        self, pair: Pair, age: Age = NEWEST, *, group_id: str | None = None, what: str = "group"
    ) -> None:
        self.pair = pair
        self.age = age
        self.id = fresh_name(what) if group_id is None else group_id
        self.wait_coordinated()

    def wait_coordinated(self) -> None:
        """A Kafka that has just started makes its internal topic when somebody looks for a group's
        coordinator.
        """
        search = m.FindCoordinatorRequest(key=self.id)
        self.wait_until(search, 3, lambda answer: not answer.error_code)
        request = m.OffsetFetchRequest(group_id=self.id, topics=[])
        self.wait_until(request, 7, lambda answer: answer.error_code not in NO_COORDINATOR)

    def wait_until(self, request: object, version: int, is_so: Callable[[Value], bool]) -> Answers:
        """Ask both, without comparing, until both say so."""
        deadline = time.monotonic() + EVENTUALLY_S
        while True:
            answers = self.pair.peek(request, version)
            if all(map(is_so, answers)):
                return answers
            assert time.monotonic() < deadline, f"waited in vain; the last was {answers}"
            time.sleep(0.005)

    def member(self, name: str, instance: str | None = None, **settings: Value) -> "Member":
        """Somebody who may join. `settings` are attributes of Member."""
        member = Member(self, name, instance)
        for key, value in settings.items():
            assert hasattr(member, key), key
            setattr(member, key, value)
        return member

    # Looking.

    def describe(
        self,
        version: int | None = None,
        *,
        differs: Difference | None = None,
        eventually: bool = False,
    ) -> Value:
        """Compare what DescribeGroups shows; Kafka's view is returned.

        Kafka shows a group that it has not stored once the records before it are committed: to be
        compared `eventually`.
        """
        version = self.age.describe if version is None else version
        request = m.DescribeGroupsRequest(groups=[self.id])
        if eventually or (differs is None and self.pair.is_waiting):
            # On a busy machine one of both has not taken up yet what it has not answered yet.
            answers = self.pair.ask_until_equal(request, version)
        else:
            answers = self.pair.ask(request, version, differs=differs)
        return answers.kafka.groups[0]

    def show(self, *members: "Member") -> None:
        """Describe it, and have these members tell that they are alive."""
        self.describe()
        for member in members:
            member.heartbeat()

    def list(self, version: int = 5, **filters: list[str]) -> None:
        """Compare what ListGroups shows of this group."""
        self.pair.ask(m.ListGroupsRequest(**filters), version, about=[self.id])

    def check_state(self, state: str, *, differs: Difference | None = None) -> None:
        """Both are there, and show the same members."""
        found = self.describe(differs=differs).group_state
        assert found == state, f"the scene needs {state}, and Kafka is in {found}"

    def wait_members(self, count: int) -> None:
        """Until both know that many, which those that wait for a rebalance are among."""
        self.wait_until(
            m.DescribeGroupsRequest(groups=[self.id]),
            6,
            lambda answer: len(answer.groups[0].members) == count,
        )

    def wait_state(self, state: str) -> None:
        """Until both are in it."""
        self.wait_until(
            m.DescribeGroupsRequest(groups=[self.id]),
            6,
            lambda answer: answer.groups[0].group_state == state,
        )

    # Scenes.

    def gather(self, leader: "Member", *others: "Member") -> None:
        """Have them join an empty group: CompletingRebalance, led by the first."""
        leader.joined()
        self.regather([leader], *others)

    def regather(self, present: Sequence["Member"], *others: "Member") -> None:
        """Have others join a group where all `present` are members: CompletingRebalance."""
        count = len(present)
        waiting = []
        for other in others:
            waiting.append(other.park())
            count += 1
            self.wait_members(count)
        if waiting:
            waiting += [member.join() for member in present]
        for pending in waiting:
            pending.answers()

    def rejoin(self, *members: "Member") -> None:
        """Have all that there are join the rebalance that runs: CompletingRebalance."""
        for pending in [member.join() for member in members]:
            pending.answers()

    def assign(self, leader: "Member", *others: "Member") -> None:
        """From CompletingRebalance to Stable; everybody gets its own name."""
        waiting = [other.sync() for other in others]
        waiting.append(leader.sync(assign=[leader, *others]))
        for pending in waiting:
            pending.answers()

    def settle(self, leader: "Member", *others: "Member") -> None:
        """From Empty to Stable."""
        self.gather(leader, *others)
        self.assign(leader, *others)

    def leave(
        self,
        *entries: "Member | MemberIdentity",
        version: int | None = None,
        differs: Difference | None = None,
    ) -> Answers:
        """LeaveGroup for one or, from v3 on, for several. Members give their id only."""
        version = self.age.leave if version is None else version
        identities = [
            MemberIdentity(member_id=entry.id) if isinstance(entry, Member) else entry
            for entry in entries
        ]
        request = m.LeaveGroupRequest(group_id=self.id)
        if version < MEMBERS_LEAVE_SINCE:
            (only,) = identities
            request.member_id = only.member_id
        else:
            request.members = identities
        return self.pair.ask(request, version, differs=differs)


class Member:
    """One process. It uses as many connections as it has requests under way."""

    def __init__(self, group: Group, name: str, instance: str | None = None) -> None:
        self.group = group
        self.name = name
        """Its client id: by the ids that begin with it, members can be told apart."""
        self.instance = instance
        self.id: Value = ""
        self.generation: Value = -1
        self.session_ms = 30_000
        self.rebalance_ms = 50_000
        self.patience_s = 10.0
        """How long an answer that nothing holds back may take."""
        self.type = "consumer"
        self.protocols: Mapping[str, bytes] = {"range": subscription("a", user_data=name.encode())}
        self._lines: list[Line] = []

    @property
    def pair(self) -> Pair:
        return self.group.pair

    def line(self) -> Line:
        """A connection without a request under way."""
        for line in self._lines:
            if not line.awaited:
                return line
        self._lines.append(self.pair.open(timeout_s=self.patience_s, client_id=self.name))
        return self._lines[-1]

    # Joining.

    def join_request(self, version: int, **changes: Value) -> m.JoinGroupRequest:
        request = m.JoinGroupRequest(
            group_id=self.group.id,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.id,
            group_instance_id=self.instance if version >= 5 else None,
            protocol_type=self.type,
            protocols=[
                m.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in self.protocols.items()
            ],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return request

    def join(self, version: int | None = None, **changes: Value) -> Pending:
        """Send a JoinGroup; what the answers say is remembered once they are asked for."""
        version = self.group.age.join if version is None else version
        pending = self.line().send(self.join_request(version, **changes), version)
        pending.then = self.learn
        return pending

    def learn(self, answers: Answers) -> None:
        """The id and the generation, of answers that both gave and that have some."""
        if not all(isinstance(answer, Struct) for answer in answers):
            return
        errors = {answer.error_code for answer in answers}
        if errors <= {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED}:
            self.id = answers.each(lambda answer: answer.member_id)
        if errors == {ErrorCode.NONE}:
            self.generation = answers.each(lambda answer: answer.generation_id)

    def ask_for_id(self, version: int | None = None) -> "Member":
        """The first of two joins, where that is how it is done."""
        answers = self.join(version).answers()
        assert answers.kafka.error_code == ErrorCode.MEMBER_ID_REQUIRED, answers.kafka
        return self

    def park(self, version: int | None = None, **changes: Value) -> Pending:
        """Join as somebody new up to where the broker keeps the answer back."""
        has_id = self.instance is not None or self.id
        if self.group.age.has_required_ids and not has_id:
            self.ask_for_id(version)
        return self.join(version, **changes)

    def joined(self, version: int | None = None, **changes: Value) -> Answers:
        """Join, all the way."""
        return self.park(version, **changes).answers()

    # In the group.

    def sync_request(
        self, version: int, assign: "Sequence[Member] | None" = None, **changes: Value
    ) -> m.SyncGroupRequest:
        request = m.SyncGroupRequest(
            group_id=self.group.id,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance if version >= 3 else None,
            protocol_type=self.type,
            protocol_name=next(iter(self.protocols)),
            assignments=[
                m.SyncGroupRequestAssignment(member_id=one.id, assignment=one.name.encode())
                for one in assign or ()
            ],
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return request

    def sync(
        self,
        version: int | None = None,
        *,
        assign: "Sequence[Member] | None" = None,
        **changes: Value,
    ) -> Pending:
        """Send a SyncGroup, with an assignment for whom it is meant."""
        version = self.group.age.sync if version is None else version
        return self.line().send(self.sync_request(version, assign, **changes), version)

    def heartbeat_request(self, version: int, **changes: Value) -> m.HeartbeatRequest:
        request = m.HeartbeatRequest(
            group_id=self.group.id,
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance if version >= 3 else None,
        )
        for name, value in changes.items():
            setattr(request, name, value)
        return request

    def heartbeat(self, version: int | None = None, **changes: Value) -> Answers:
        """Ask, and compare."""
        version = self.group.age.heartbeat if version is None else version
        return self.line().ask(self.heartbeat_request(version, **changes), version)

    def leave(self, *, differs: Difference | None = None) -> Answers:
        """By its id."""
        return self.group.leave(self, differs=differs)
