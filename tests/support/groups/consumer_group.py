"""A consumer group under virtual time, with its log, its clients and its history."""

import json
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field

from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.config import GroupConfig
from kohort.groups.consumer.data import ConsumerData, ConsumerSettings
from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.consumer.requests import HeartbeatRequest
from kohort.groups.effects import Append, Cancel, Note, Reply, Schedule, TimerKey
from kohort.groups.encoding import decode, encode_headers, encode_key, encode_value, types_of_kind
from kohort.groups.events import CauseAdded, Event, RebalanceStarted
from kohort.groups.group import Group
from kohort.groups.history.build import build_steps
from kohort.groups.history.facts import RebalanceFacts
from kohort.groups.history.fold import GroupFold
from kohort.groups.history.json_form import from_json, text_steps
from kohort.groups.history.model import RebalanceRecord
from kohort.groups.kinds import GroupKind
from kohort.groups.member_memory import MemberAccount
from kohort.groups.member_sessions import HeartbeatResult
from kohort.groups.records import RecordHeaders
from kohort.groups.requests import Now
from kohort.groups.steps import at_once
from kohort.groups.topics import Partition, Topic
from kohort.protocol.errors import ErrorCode

INTERVAL_MS = 1_000
SESSION_MS = 45_000
REVOCATION_MS = 10_000
SETTINGS = ConsumerSettings(
    session_timeout_ms=SESSION_MS, assignment_interval_ms=INTERVAL_MS, max_size=8
)


@dataclass
class Topics:
    """Topics that are created, grow and are deleted."""

    version: int = 0
    by_name: dict[str, Topic] = field(default_factory=dict)
    ids: int = 0

    def get(self, name: str) -> Topic | None:
        return self.by_name.get(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((n for n, topic in self.by_name.items() if topic.topic_id == topic_id), None)

    def names(self) -> Iterable[str]:
        return list(self.by_name)

    def change(self, name: str, count: int) -> None:
        self.version += 1
        before = self.by_name.get(name)
        if not count:
            self.by_name.pop(name, None)
        elif before is None:
            self.ids += 1
            self.by_name[name] = Topic(self.ids.to_bytes(16, "big"), count)
        else:
            self.by_name[name] = before._replace(partition_count=before.partition_count + count)


@dataclass(eq=False)
class Client:
    """A member's process. `hands` is what it reads now."""

    member_id: str
    instance_id: str | None
    names: tuple[str, ...]
    epoch: int = 0
    hands: set[Partition] = field(default_factory=set)
    assignment: frozenset[Partition] | None = None
    """What it was answered and has not taken over yet."""
    is_unsure: bool = True
    """Whether it has to send everything: it joins, or an answer was lost."""
    regex: str | None = None
    has_lied: bool = False
    client_id: str = ""
    client_software: str = ""

    def request(self, *, states_owned: bool) -> HeartbeatRequest:
        if self.epoch == 0 or self.is_unsure:
            return HeartbeatRequest(
                self.member_id,
                self.epoch,
                self.instance_id,
                rebalance_timeout_ms=REVOCATION_MS,
                topic_names=self.names,
                topic_regex=self.regex,
                owned=frozenset(self.hands),
                client_id=self.client_id,
                client_software=self.client_software,
            )
        owned = frozenset(self.hands) if states_owned else None
        return HeartbeatRequest(
            self.member_id, self.epoch, self.instance_id, owned=owned, client_id=self.client_id
        )

    def take(self, result: HeartbeatResult) -> None:
        """Process a response; partitions to be revoked are kept until `revoke`."""
        if result.error:
            self.hands.clear()
            self.assignment = None
            self.epoch, self.is_unsure = 0, True
            return
        self.epoch, self.is_unsure = result.epoch, False
        if result.assigned is not None:
            self.assignment = frozenset(result.assigned)
            if self.hands <= self.assignment:
                self.revoke()

    def revoke(self) -> None:
        if self.assignment is not None:
            self.hands, self.assignment = set(self.assignment), None


class ConsumerGroup:
    """One group, its log and the records of its rebalances."""

    def __init__(self) -> None:
        self.topics = Topics()
        self.settings = SETTINGS
        self.now = Now(1_000, 1_000_000)
        self.log: dict[bytes, tuple[bytes | None, RecordHeaders]] = {}
        self.timers: dict[TimerKey, int] = {}
        self.bumps = 0
        self.replies: list[object] = []
        self.answers: dict[object, object] = {}
        """Replies by ticket."""
        self.events: list[Event] = []
        self.append_count = 0
        self.fold = GroupFold()
        self.rebalances: list[RebalanceRecord] = []
        self.store_ms = 0
        """How long an append takes."""
        self.group = self.new_group()

    def append_fails(self) -> bool:
        """Whether the next append fails; overridden."""
        return False

    def new_group(self) -> Group:
        def classic(group: Group) -> ClassicMembership:
            return ClassicMembership(ClassicData(group, new_member_id=lambda prefix: prefix))

        def consumer(group: Group) -> ConsumerMembership:
            return ConsumerMembership(
                group,
                self.topics,
                lambda _: self.settings,
                MemberAccount(),
                new_classic=classic,
                new_member_id=lambda: "new",
            )

        self.new_membership = consumer
        restorers = dict.fromkeys(types_of_kind(GroupKind.CONSUMER), consumer)
        return Group("g", GroupConfig(), restorers)

    @property
    def data(self) -> ConsumerData | None:
        membership = self.group.membership
        return membership.data if isinstance(membership, ConsumerMembership) else None

    # Running the group.

    def run(self) -> None:
        """Carry out the effects; appends sometimes fail."""
        while True:
            append = None
            for effect in self.group.take_effects():
                match effect:
                    case Append():
                        append = effect
                    case Schedule(key=key, deadline_ms=deadline_ms):
                        self.timers[key] = deadline_ms
                    case Cancel(key=key):
                        self.timers.pop(key, None)
                    case Reply(ticket=ticket, body=body):
                        self.replies.append(body)
                        self.answers[ticket] = body
                    case Note(event=event):
                        self.bumps += isinstance(event, RebalanceStarted | CauseAdded)
                        self.observe(event)
            if append is None:
                return
            if self.append_fails():
                before = self.durable()
                self.group.on_append_failed(ErrorCode.NOT_ENOUGH_REPLICAS, self.now)
                assert self.durable() == before
                continue
            self.now = self.later(self.store_ms)
            self.append_count += 1
            for record in append.records:
                self.log[encode_key(record)] = (encode_value(record), encode_headers(record))
            self.group.on_appended(self.now)

    def observe(self, event: Event) -> None:
        """Let the history make records, each of which survives its JSON form."""
        self.events.append(event)
        self.fold.observe(event, self.now)
        closed, self.fold.closed = self.fold.closed, []
        for facts in closed:
            if isinstance(facts, RebalanceFacts):
                record = self.record_of(facts)
                assert from_json(json.loads(at_once(text_steps(record)))) == record
                self.rebalances.append(record)

    def record_of(self, facts: RebalanceFacts) -> RebalanceRecord:
        record, _ = at_once(build_steps("g", facts, until_ms=self.now.ms))
        return record

    def later(self, ms: int) -> Now:
        return Now(self.now.ms + ms, self.now.wall_ms + ms)

    def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResult:
        self.replies.clear()
        membership = self.group.membership
        if isinstance(membership, ConsumerMembership):
            result = membership.answer_at_once(request, self.now.ms)
            if result is not None:
                self.run()
                return result
            at_once(membership.heartbeat(request, "ticket", self.now))
        elif request.epoch:
            return HeartbeatResult(ErrorCode.GROUP_ID_NOT_FOUND)
        else:
            new = self.new_membership(self.group)
            at_once(new.heartbeat(request, "ticket", self.now, begins=self.group))
        self.run()
        (answer,) = self.replies
        assert isinstance(answer, HeartbeatResult)
        return answer

    def heartbeats(
        self, requests: Sequence[HeartbeatRequest], *, shares_append: bool = True
    ) -> list[HeartbeatResult]:
        """Execute heartbeats that arrive together, with as few appends as possible, or with one for
        each; return the answers.
        """
        self.answers.clear()
        for ticket, request in enumerate(requests):
            membership = self.group.membership
            if isinstance(membership, ConsumerMembership):
                at_once(
                    membership.heartbeat(request, ticket, self.now, shares_append=shares_append)
                )
            elif request.epoch:
                self.answers[ticket] = HeartbeatResult(ErrorCode.GROUP_ID_NOT_FOUND)
            else:
                new = self.new_membership(self.group)
                at_once(new.heartbeat(request, ticket, self.now, begins=self.group))
            if self.group.outbox.is_writing:
                self.run()
        self.group.outbox.stage_shared()
        self.run()
        results = [self.answers.pop(ticket) for ticket in range(len(requests))]
        assert not self.answers
        assert all(isinstance(result, HeartbeatResult) for result in results)
        return results  # type: ignore[return-value]

    def pass_time(self, ms: int) -> None:
        self.now = self.later(ms)
        while due := sorted(key for key, at_ms in self.timers.items() if at_ms <= self.now.ms):
            for key in due:
                del self.timers[key]
            self.group.on_deadlines(due, self.now)
            self.run()

    def restart(self) -> None:
        """Replay the log; everything durable is as before."""
        before = self.durable()
        self.group = self.new_group()
        self.timers.clear()
        restored = [
            record
            for key, (value, headers) in self.log.items()
            if (record := decode(key, value, headers)) is not None
        ]
        bumps = self.bumps
        self.group.restore(restored, self.now)
        self.run()
        self.bumps = bumps  # A rebalance that goes on is reported anew.
        assert self.durable() == before

    def durable(self) -> dict[str, object] | None:
        """A copy of what the log has; None without members, who may have left no trace."""
        data = self.data
        if data is None or not data.members:
            return None
        names = (
            *("epoch", "metadata_hash", "target_epoch", "target_computed_ms", "members"),
            *("targets", "owners", "instances", "subscribers", "votes", "at_epoch"),
            "begun",
        )
        return {name: copy(getattr(data, name)) for name in names}


def beat(world: ConsumerGroup, client: Client) -> None:
    """Revoke what is to be revoked, and send a heartbeat."""
    client.revoke()
    client.take(world.heartbeat(client.request(states_owned=True)))
