"""The present state of a group, according to its records and the polls.

Views are immutable and made of values that are never changed: another thread may read them while
the group is followed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from kohort.groups.classic.states import ClassicState
from kohort.groups.consumer.data import ASSIGNING, RECONCILING, STABLE
from kohort.groups.consumer.describe import ASSIGNMENT_EPOCH, EPOCH, UNRECONCILED
from kohort.groups.consumer.member import LEFT_FOR_RESTART, MemberState
from kohort.groups.consumer.records import ConsumerMemberRecord, CurrentRecord
from kohort.groups.description import DescribedMember, GroupDescription, WaitingFor
from kohort.groups.events import MemberRef
from kohort.groups.kinds import EMPTY, GroupKind
from kohort.groups.records import GroupRecord
from kohort.groups.requests import CONSUMER
from kohort.groups.share.data import ShareMember
from kohort.groups.topics import by_topic
from kohort.protocol.codec import encode_versioned
from kohort.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.followed import Poll, ref
from kohort.watch.core.topics import TopicNames

_PHASES: Final = {
    ClassicState.PREPARING_REBALANCE.value: "join",
    ClassicState.COMPLETING_REBALANCE.value: "assign",
}
"""What a classic group waits for, by its state."""

_STABLE: Final = ClassicState.STABLE.value


class View:
    """Implements :class:`kohort.broker.groups_seen.GroupSeen`, except for offsets.

    The default results of the methods are those of a group without members.
    """

    __slots__ = ()

    def describe(self) -> GroupDescription:
        raise NotImplementedError

    def describe_members(self, count_max: int | None = None) -> Sequence[DescribedMember]:
        del count_max
        return ()

    def describe_waiting(self) -> WaitingFor | None:
        return None

    def gauges(self) -> Mapping[str, int]:
        return {}


@dataclass(frozen=True, slots=True)
class OffsetsOnlyView(View):
    """A group that only stores offsets."""

    group_id: str

    def describe(self) -> GroupDescription:
        return GroupDescription(self.group_id, GroupKind.CLASSIC, EMPTY)


@dataclass(frozen=True, slots=True)
class _RecordView(View):
    record: GroupRecord
    """The last stored generation, or the result of a poll."""

    def _description(
        self, kind: GroupKind, state: str, since_ms: int, *, is_rebalancing: bool
    ) -> GroupDescription:
        record = self.record
        return GroupDescription(
            record.group_id,
            kind,
            state,
            record.protocol_type or None,
            record.generation,
            record.protocol_name,
            record.leader_id,
            since_ms,
            len(record.members),
            is_stable=state == _STABLE,
            is_rebalancing=is_rebalancing,
        )

    def describe_members(self, count_max: int | None = None) -> Sequence[DescribedMember]:
        protocol = self.record.protocol_name
        return [
            DescribedMember(
                *ref(member)[:4],
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                (protocol,) if protocol else (),
                member.subscription,
                member.assignment,
            )
            for member in islice(self.record.members, count_max)
        ]


@dataclass(frozen=True, slots=True)
class PolledView(_RecordView):
    kind: GroupKind
    state: str
    since_ms: int
    """When the state was first seen."""

    def describe(self) -> GroupDescription:
        is_rebalancing = self.state not in {_STABLE, EMPTY}
        return self._description(
            self.kind, self.state, self.since_ms, is_rebalancing=is_rebalancing
        )

    def describe_members(self, count_max: int | None = None) -> Sequence[DescribedMember]:
        members = _RecordView.describe_members(self, count_max)
        return [member._replace(metadata=b"") for member in members]

    def describe_waiting(self) -> WaitingFor | None:
        if self.state != ClassicState.PREPARING_REBALANCE.value:
            return None
        members = tuple([ref(member) for member in self.record.members])
        return WaitingFor("join", self.since_ms, None, members, is_any=True)


@dataclass(frozen=True, slots=True)
class ClassicView(_RecordView):
    since_ms: int
    """When `record` was stored, or when the rebalance was first seen."""
    poll: Poll | None
    """The last poll, if it showed a rebalance."""

    @property
    def _phase(self) -> str | None:
        return None if self.poll is None else _PHASES.get(self.poll.state)

    def describe(self) -> GroupDescription:
        state = _STABLE if self.record.members else EMPTY
        is_rebalancing = self._phase is not None
        if self.poll is not None and is_rebalancing:
            state = self.poll.state
        return self._description(
            GroupKind.CLASSIC, state, self.since_ms, is_rebalancing=is_rebalancing
        )

    def describe_waiting(self) -> WaitingFor | None:
        """Return what the rebalance in the last poll waits for; None if there was none. It may wait
        for any of the members, because a poll does not show which of them have rejoined.
        """
        phase = self._phase
        if phase is None or self.poll is None:
            return None
        if not self.record.members:
            return WaitingFor(
                "initial_delay" if phase == "join" else phase, self.since_ms, None, ()
            )
        timeouts = [member.rebalance_timeout_ms for member in self.record.members]
        until_ms = self.since_ms + max(timeouts)
        present = self.poll.member_ids
        members = [ref(member) for member in self.record.members if member.member_id in present]
        return WaitingFor(phase, self.since_ms, until_ms, tuple(members), is_any=True)


class ConsumerMemberView(NamedTuple):
    member: ConsumerMemberRecord
    current: CurrentRecord | None
    """The member's epoch and partitions; None if these are not stored."""


@dataclass(frozen=True, slots=True)
class ConsumerView(View):
    group_id: str
    state: str
    epoch: int
    target_epoch: int
    since_ms: int
    members: tuple[ConsumerMemberView, ...]
    timeouts: Timeouts
    names: TopicNames

    def describe(self) -> GroupDescription:
        assignors = [member.server_assignor for member, _ in self.members]
        return GroupDescription(
            self.group_id,
            GroupKind.CONSUMER,
            self.state,
            CONSUMER,
            self.epoch,
            next(filter(None, assignors), None),
            None,
            self.since_ms,
            len(self.members),
            is_stable=self.state == STABLE,
            is_rebalancing=self.state in {ASSIGNING, RECONCILING},
        )

    def describe_members(self, count_max: int | None = None) -> Sequence[DescribedMember]:
        return [
            DescribedMember(
                *ref(member)[:4],
                self.timeouts.session_ms,
                member.rebalance_timeout_ms,
                (member.server_assignor,) if member.server_assignor else (),
                b"",
                self._assignment(current),
            )
            for member, current in islice(self.members, count_max)
        ]

    def _assignment(self, current: CurrentRecord | None) -> bytes:
        if current is None:
            return b""
        numbers: dict[bytes, list[int]] = {}
        for partitions in (current.assigned, current.pending):
            for topic_id, of_topic in partitions.items():
                numbers.setdefault(topic_id, []).extend(of_topic)
        return _encoded(numbers, self.names)

    def describe_waiting(self) -> WaitingFor | None:
        """Return what the group waits for; if members' phases differ, the one a broker reports."""
        if self.state == ASSIGNING:
            return WaitingFor("assign", self.since_ms, None, ())
        if self.state != RECONCILING:
            return None
        by_phase: dict[str, list[ConsumerMemberView]] = {}
        for member, current in self.members:
            phase = self._phase_of(current)
            if phase is not None:
                by_phase.setdefault(phase, []).append(ConsumerMemberView(member, current))
        revoking = by_phase.get("revoke")
        if revoking is not None:
            return WaitingFor(
                "revoke",
                self.since_ms,
                None,
                _refs(revoking),
                partition_count=sum(_pending_count(current) for _, current in revoking),
                blocked_count=len(by_phase.get("give", ())),
            )
        phase = next((name for name in ("return", "tell", "give") if name in by_phase), "give")
        return WaitingFor(phase, self.since_ms, None, _refs(by_phase.get(phase, ())))

    def _phase_of(self, current: CurrentRecord | None) -> str | None:
        """Return what a member's reconciliation waits for (a phase); None if it is complete."""
        if current is None:
            return "tell"
        if current.state == MemberState.UNREVOKED_PARTITIONS:
            return "revoke"
        if current.epoch == LEFT_FOR_RESTART:
            return "return"
        if current.epoch != self.target_epoch:
            return "tell"
        return None if current.state == MemberState.STABLE else "give"

    def gauges(self) -> Mapping[str, int]:
        counts = dict.fromkeys(UNRECONCILED, 0)
        for _, current in self.members:
            if current is not None and self._phase_of(current) is not None:
                name = f"unreconciled.{MemberState.of(current.state).name}"
                counts[name] = counts.get(name, 0) + 1
        return {EPOCH: self.epoch, ASSIGNMENT_EPOCH: self.target_epoch, **counts}


@dataclass(frozen=True, slots=True)
class ShareView(View):
    group_id: str
    epoch: int
    since_ms: int
    members: tuple[ShareMember, ...]
    timeouts: Timeouts
    names: TopicNames

    @property
    def state(self) -> str:
        return _STABLE if self.members else EMPTY

    def describe(self) -> GroupDescription:
        return GroupDescription(
            self.group_id,
            GroupKind.SHARE,
            self.state,
            GroupKind.SHARE.value,
            self.epoch,
            since_ms=self.since_ms,
            member_count=len(self.members),
            is_stable=bool(self.members),
        )

    def describe_members(self, count_max: int | None = None) -> Sequence[DescribedMember]:
        return [
            DescribedMember(
                *member.ref[:4],
                self.timeouts.share_session_ms,
                -1,
                (),
                b"",
                _encoded(by_topic(member.assigned), self.names),
            )
            for member in islice(self.members, count_max)
        ]


def _encoded(numbers: Mapping[bytes, Sequence[int]], names: TopicNames) -> bytes:
    assigned = [
        TopicPartition(topic=names.name_of(topic_id), partitions=sorted(of_topic))
        for topic_id, of_topic in numbers.items()
    ]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), 0)


def _refs(members: Sequence[ConsumerMemberView]) -> tuple[MemberRef, ...]:
    return tuple([ref(member) for member, _ in members])


def _pending_count(current: CurrentRecord | None) -> int:
    return 0 if current is None else sum(map(len, current.pending.values()))
