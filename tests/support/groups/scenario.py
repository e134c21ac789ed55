"""Drives one group through time: a shell without a loop, whose clock moves when a test says so.

Checks on the way what holds for every group at every time: a ticket is answered exactly once, an
Append comes last, and every parked request has a deadline.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.config import GroupConfig
from kohort.groups.effects import (
    Append,
    Cancel,
    Note,
    Replies,
    Reply,
    Schedule,
    ScheduleSessions,
    TimerKey,
)
from kohort.groups.events import Event, RebalanceAvoided, RebalanceStarted, Trigger
from kohort.groups.group import Group
from kohort.groups.reasons import NO_REASON, state_reason
from kohort.groups.records import (
    DurableRecord,
    GroupRecord,
    OffsetRecord,
    OffsetTombstone,
    PendingOffset,
)
from kohort.groups.requests import (
    CommitRequest,
    CommitResult,
    DeleteOffsetsResult,
    EnclosingTransaction,
    JoinRequest,
    JoinResult,
    LeaveEntry,
    LeaveResult,
    Now,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
    TopicPartition,
)
from kohort.protocol.codec import encode_versioned
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason
from kohort.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

E = TypeVar("E", bound=Event)
Change: TypeAlias = Any
"""A field of the request by its name."""
WALL_START_MS = 1_700_000_000_000
SECOND = 1_000
MINUTE = 60 * SECOND


def subscription(*topics: str, version: int = 3) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), version)


RANGE = (("range", subscription("t")),)


@dataclass
class Ended:
    """The marker of a transaction, as it lies between the records of the log."""

    producer_id: int
    commit: bool


def settled(log: Sequence[DurableRecord | Ended]) -> list[DurableRecord]:
    """The records of a log that still count, in their order: of each key the last whose transaction
    is not aborted, and behind or before it those of open transactions. This is what positions are
    by definition, computed from the whole log again for every record.
    """
    counting: list[DurableRecord] = []
    taken: set[object] = set()
    """Keys whose last record was found, going backwards."""
    ends: dict[int, bool] = {}
    """The next marker of each producer, seen from where we are."""
    held: set[object] = set()
    for entry in reversed(log):
        match entry:
            case Ended(producer_id, commit):
                ends[producer_id] = commit
            case PendingOffset(group_id, topic, partition, committed, producer_id, _):
                place = (topic, partition)
                is_buried = (place, "buried") in taken
                if producer_id not in ends:
                    if not is_buried and (place, producer_id) not in held:
                        held.add((place, producer_id))
                        counting.append(entry)
                elif ends[producer_id] and place not in taken and not is_buried:
                    taken.add(place)
                    counting.append(OffsetRecord(group_id, topic, partition, committed))
            case OffsetTombstone(_, topic, partition):
                taken |= {(topic, partition), ((topic, partition), "buried")}
            case OffsetRecord(_, topic, partition, _):
                if (topic, partition) not in taken:
                    taken.add((topic, partition))
                    counting.append(entry)
            case _:
                if () not in taken:
                    taken.add(())
                    counting.append(entry)
    counting.reverse()
    return counting


@dataclass(eq=False)
class Ticket:
    number: int
    answers: list[Any] = field(default_factory=list)

    @property
    def answer(self) -> Any:  # noqa: ANN401 - a ticket is answered by whatever was asked.
        assert len(self.answers) == 1, f"{len(self.answers)} answers"
        return self.answers[0]

    @property
    def is_parked(self) -> bool:
        return not self.answers


class Scenario:
    def __init__(
        self,
        config: GroupConfig | None = None,
        *,
        partition_counts: dict[str, int] | None = None,
    ) -> None:
        self.config = config or GroupConfig()
        self.partition_counts = partition_counts if partition_counts is not None else {"t": 3}
        self.grown: dict[str, int] = {}
        """When topics were given more partitions (wall time)."""
        self.ms = 5_000
        self.ids = itertools.count(1)
        self.tickets: list[Ticket] = []
        self.timers: dict[TimerKey, int] = {}
        self.timers_fired = 0
        self.appends: list[tuple[DurableRecord, ...]] = []
        """Every append that was asked for."""
        self.log: list[DurableRecord | Ended] = []
        """What became durable."""
        self._behind: list[Ended] = []
        """Markers behind the append that is under way."""
        self.hold_appends = False
        self.fail_appends: ErrorCode | None = None
        self.events: list[Event] = []
        self.watch: Callable[[object], None] = lambda answer_or_event: None
        """Sees answers and events in their order, in the moment in which they happen."""
        self._in_turn = False
        self.group = self.make_group()

    def make_group(self) -> Group:
        return Group("g", self.config, {GroupRecord: self.make_membership})

    def make_membership(self, group: Group) -> ClassicMembership:
        data = ClassicData(
            group,
            new_member_id=lambda prefix: f"{prefix}-{next(self.ids)}",
            partition_count=self.partition_counts.get,
            grown_since=lambda wall_ms: {
                topic: at_ms for topic, at_ms in self.grown.items() if at_ms >= wall_ms
            },
        )
        return ClassicMembership(data)

    @property
    def now(self) -> Now:
        return Now(self.ms, WALL_START_MS + self.ms)

    @property
    def state(self) -> str:
        return self.group.describe().state

    @property
    def classic(self) -> ClassicMembership:
        """The membership of the group, which gets one if it has none yet."""
        if self.group.membership is None:
            self.group.membership = self.make_membership(self.group)
        assert isinstance(self.group.membership, ClassicMembership)
        return self.group.membership

    # Steps.

    def ticket(self) -> Ticket:
        ticket = Ticket(len(self.tickets))
        self.tickets.append(ticket)
        return ticket

    def step(self, act: Callable[[], object]) -> None:
        act()
        if not self._in_turn:
            self.take_effects()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Steps inside have come together: their effects are carried out at the end."""
        self._in_turn = True
        try:
            yield
        finally:
            self._in_turn = False
        self.take_effects()

    def take_effects(self) -> None:
        effects = self.group.take_effects()
        for effect in effects:
            match effect:
                case Reply():
                    self._answer(effect)
                case Replies(replies):
                    for reply in replies:
                        self._answer(reply)
                case Schedule(key, deadline_ms):
                    self.timers[key] = deadline_ms
                case ScheduleSessions(deadlines):
                    self.timers |= deadlines
                case Cancel(key):
                    self.timers.pop(key, None)
                case Note(event):
                    self.events.append(event)
                    self.watch(event)
                case Append(records):
                    assert effect is effects[-1]
                    assert records
                    self.appends.append(records)
                    if not self.hold_appends:
                        self.finish_append()
        self.check()

    def _answer(self, reply: Reply) -> None:
        ticket, body = reply.ticket, reply.body
        assert isinstance(ticket, Ticket)
        assert ticket.is_parked, f"answered twice: {ticket.answers}, {body}"
        ticket.answers.append(body)
        self.watch(body)

    def finish_append(self) -> None:
        if self.fail_appends is None:
            self.log += self.appends[-1]
            self.group.on_appended(self.now)
        else:
            self.group.on_append_failed(self.fail_appends, self.now)
        self.log += self._behind
        self._behind.clear()
        self.take_effects()

    def check(self) -> None:
        if self.group.membership is None:
            return
        group = self.classic
        parked = [member for member in group.roster if member.join_ticket is not None]
        assert group.roster.parked_joins == len(parked)
        kept_bytes = [member.metadata_bytes + len(member.assignment) for member in group.roster]
        assert group.roster.kept_bytes == sum(kept_bytes)
        assert group.roster.memory.used_bytes >= group.roster.kept_bytes
        for key, deadline_ms in group.data.deadlines.items():
            assert self.timers[key] == deadline_ms
        for member in group.roster:
            if member.session_timer_ms is not None:
                assert self.timers[TimerKey("session", member.member_id)] == member.session_timer_ms
                assert member.session_timer_ms <= member.session_deadline_ms
            if member.join_ticket is not None:
                assert TimerKey("join") in self.timers
            elif member.sync_ticket is not None:
                assert (
                    TimerKey("sync") in self.timers
                    or self.group.outbox.in_flight
                    or not group.data.pending_sync
                )
            else:
                assert member.session_timer_ms is not None
        for member_id in group.roster.pending:
            assert TimerKey("pending", member_id) in self.timers

    def advance(self, duration_ms: int) -> None:
        """Let time pass; what comes due in one millisecond is handed over together."""
        end_ms = self.ms + duration_ms
        while self.timers and (due_ms := min(self.timers.values())) <= end_ms:
            self.ms = max(self.ms, due_ms)
            keys = [key for key, at_ms in self.timers.items() if at_ms <= self.ms]
            for key in keys:
                del self.timers[key]
            self.timers_fired += len(keys)
            self.step(lambda keys=keys: self.group.on_deadlines(keys, self.now))  # type: ignore[misc]
        self.ms = end_ms

    def restart(self) -> None:
        """The process dies and starts again: all that is left is the log."""
        self.timers.clear()
        self.tickets.clear()
        self.group = self.make_group()
        self.step(lambda: self.group.restore(settled(self.log), self.now))

    # Requests.

    def join(
        self, member_id: str = "", *, instance: str | None = None, **changes: Change
    ) -> Ticket:
        reason = changes.pop("reason", 0)
        text = changes.pop("text", None)
        request = JoinRequest(
            member_id=member_id,
            instance_id=instance,
            client_id="c",
            client_host="/127.0.0.1",
            session_timeout_ms=10 * SECOND,
            rebalance_timeout_ms=60 * SECOND,
            protocol_type="consumer",
            protocols=RANGE,
            reason=state_reason(int(reason), text) if reason or text else NO_REASON,
        )
        ticket = self.ticket()
        self.step(lambda: self.classic.join(replace(request, **changes), ticket, self.now))
        return ticket

    def new_id(self, **changes: Change) -> str:
        """First leg of a dynamic member's join."""
        answer: JoinResult = self.join(**changes).answer
        assert answer.error is ErrorCode.MEMBER_ID_REQUIRED
        return answer.member_id

    def join_dynamic(self, **changes: Change) -> tuple[str, Ticket]:
        """Both legs; the second parks, or is answered."""
        member_id = self.new_id(**changes)
        return member_id, self.join(member_id, **changes)

    def sync(self, member_id: str, generation: int | None = None, **changes: Change) -> Ticket:
        request = SyncRequest(
            member_id=member_id,
            instance_id=changes.pop("instance", None),
            generation=self.classic.data.generation if generation is None else generation,
            **changes,
        )
        ticket = self.ticket()
        self.step(lambda: self.classic.sync(request, ticket, self.now))
        return ticket

    def heartbeat(
        self, member_id: str, generation: int | None = None, *, instance: str | None = None
    ) -> ErrorCode:
        generation = self.classic.data.generation if generation is None else generation
        error = self.classic.heartbeat(member_id, instance, generation, self.ms)
        if not self._in_turn:
            self.take_effects()
        return error

    def leave(self, *entries: LeaveEntry | str) -> LeaveResult:
        answer: LeaveResult = self.send_leave(*entries).answer
        return answer

    def send_leave(self, *entries: LeaveEntry | str) -> Ticket:
        listed = [LeaveEntry(entry) if isinstance(entry, str) else entry for entry in entries]
        ticket = self.ticket()
        self.step(lambda: self.classic.leave(listed, ticket, self.now))
        return ticket

    def commit(
        self,
        *offsets: OffsetToCommit,
        producer_id: int | None = None,
        check: Callable[[], ErrorCode] = lambda: ErrorCode.NONE,
        **changes: Change,
    ) -> Ticket:
        listed = offsets or (OffsetToCommit("t", 0, 42),)
        request = CommitRequest(listed, instance_id=changes.pop("instance", None), **changes)
        ticket = self.ticket()
        if producer_id is None:
            self.step(lambda: self.group.commit(request, ticket, self.now))
        else:
            transaction = EnclosingTransaction(producer_id, 0, check)
            self.step(
                lambda: self.group.commit_in_transaction(request, transaction, ticket, self.now)
            )
        return ticket

    def end_transaction(self, producer_id: int = 7, *, commit: bool = True) -> None:
        """The marker is appended, be it behind an append whose outcome is not known."""
        marker = Ended(producer_id, commit)
        (self._behind if self.group.outbox.in_flight else self.log).append(marker)
        self.group.end_transaction(producer_id, commit=commit)
        self.check()

    def commit_error(self, *offsets: OffsetToCommit, **changes: Change) -> ErrorCode:
        answer: CommitResult = self.commit(*offsets, **changes).answer
        assert len(set(answer.errors)) == 1
        return answer.errors[0]

    def delete(self) -> ErrorCode:
        ticket = self.ticket()
        self.step(lambda: self.group.delete(ticket))
        error: ErrorCode = ticket.answer
        return error

    def delete_offsets(self, *partitions: tuple[str, int]) -> DeleteOffsetsResult:
        ticket = self.ticket()
        listed = [TopicPartition(*partition) for partition in partitions]
        self.step(lambda: self.group.delete_offsets(listed, ticket))
        answer: DeleteOffsetsResult = ticket.answer
        return answer

    def sweep(self) -> None:
        self.step(lambda: self.group.expire_offsets(self.now))

    def offset(self, topic: str = "t", partition: int = 0) -> int | None:
        committed = self.group.committed(topic, partition)
        return None if committed is None else committed.offset

    # Whole phases.

    def collect(self, joins: Iterable[Callable[[], Ticket]]) -> list[JoinResult]:
        tickets = [join() for join in joins]
        self.advance(3 * SECOND * len(tickets) + 3 * SECOND)
        return [ticket.answer for ticket in tickets]

    def completing(self, count: int = 2, **changes: Change) -> list[str]:
        """A group of dynamic members whose joins have just been answered; the first one leads."""
        assert self.state == "Empty"
        members = [self.join_dynamic(**changes) for _ in range(count)]
        self.advance(6 * SECOND if count > 1 else 3 * SECOND)
        assert self.state == "CompletingRebalance"
        return [member_id for member_id, _ in members]

    def stable(self, count: int = 2, **changes: Change) -> list[str]:
        """A group of dynamic members with assignments named after them; the first one leads."""
        members = self.completing(count, **changes)
        self.settle(members)
        return members

    def stable_static(self, *instances: str, **changes: Change) -> dict[str, str]:
        """A group of static members: instance -> member id; the first one leads."""
        assert self.state == "Empty"
        tickets = {name: self.join(instance=name, **changes) for name in instances}
        self.advance(6 * SECOND if len(instances) > 1 else 3 * SECOND)
        members = {name: ticket.answer.member_id for name, ticket in tickets.items()}
        self.settle(list(members.values()))
        return members

    def settle(self, members: list[str]) -> None:
        leader = self.classic.roster.leader_id
        assert leader is not None
        assignments = {member_id: f"of {member_id}".encode() for member_id in members}
        order = sorted(members, key=lambda member_id: member_id != leader)
        tickets = {m: self.sync(m, assignments=assignments if m == leader else {}) for m in order}
        for member_id, ticket in tickets.items():
            assert ticket.answer == SyncResult(
                ErrorCode.NONE,
                self.classic.data.protocol_type,
                self.classic.data.protocol_name,
                assignments[member_id],
            )
        assert self.state == "Stable"

    def preparing(self, count: int = 2, **changes: Change) -> list[str]:
        """A group that was stable and collects joins: one more than `count` members were there, and
        the last one has left.
        """
        *members, leaver = self.stable(count + 1, **changes)
        self.leave(leaver)
        assert self.state == "PreparingRebalance"
        return members

    # What was told.

    def told(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]

    def trigger(self) -> Trigger:
        """The trigger of the rebalance that began last."""
        return self.told(RebalanceStarted)[-1].trigger

    def avoided(self) -> list[Trigger]:
        return [event.trigger for event in self.told(RebalanceAvoided)]

    def last_group_record(self) -> GroupRecord:
        return [record for record in self.log if isinstance(record, GroupRecord)][-1]


__all__ = ["MINUTE", "RANGE", "SECOND", "JoinReason", "Scenario", "Ticket", "subscription"]
