"""A consumer group under random members, which lose answers, send late, die, return and lie about
what they own, with failed appends and restarts from the log: the properties of KIP-848 hold.
"""

import random
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, field

import pytest

from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.config import GroupConfig
from kohort.groups.consumer.data import ConsumerData
from kohort.groups.consumer.member import MemberState, Partition
from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.consumer.requests import HeartbeatRequest, HeartbeatResult
from kohort.groups.consumer.settings import ConsumerSettings, MemberAccount, Topic
from kohort.groups.effects import Append, Cancel, Note, Reply, Schedule, TimerKey
from kohort.groups.encoding import decode, encode_key, encode_value, types_of_kind
from kohort.groups.events import CauseAdded, RebalanceStarted
from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.requests import LeaveEntry, Now
from kohort.groups.steps import at_once
from kohort.protocol.errors import ErrorCode

STEPS = 120
INTERVAL_MS = 1_000
SESSION_MS = 45_000
REVOCATION_MS = 10_000
SETTINGS = ConsumerSettings(
    session_timeout_ms=SESSION_MS, assignment_interval_ms=INTERVAL_MS, max_size=8
)
LEFT = -1
LEFT_FOR_RESTART = -2


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
            )
        owned = frozenset(self.hands) if states_owned else None
        return HeartbeatRequest(self.member_id, self.epoch, self.instance_id, owned=owned)

    def take(self, result: HeartbeatResult) -> None:
        """Process an answer; what is to be revoked is kept until `revoke`."""
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


class World:
    """One group, its log, and its clients, under virtual time."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.topics = Topics()
        for number in range(3):
            self.topics.change(f"t{number}", self.chance.randint(1, 5))
        self.now = Now(1_000, 1_000_000)
        self.log: dict[bytes, bytes | None] = {}
        self.timers: dict[TimerKey, int] = {}
        self.clients: list[Client] = []
        self.ids = 0
        self.bumps = 0
        self.replies: list[object] = []
        self.group = self.new_group()
        self.epochs: dict[str, int] = {}
        self.last = (0, 0)
        self.failing_share = 0.05

    def new_group(self) -> Group:
        def classic(group: Group) -> ClassicMembership:
            return ClassicMembership(ClassicData(group, new_member_id=lambda prefix: prefix))

        def consumer(group: Group) -> ConsumerMembership:
            return ConsumerMembership(
                group,
                self.topics,
                lambda _: SETTINGS,
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
                    case Reply(body=body):
                        self.replies.append(body)
                    case Note(event=event):
                        self.bumps += isinstance(event, RebalanceStarted | CauseAdded)
            if append is None:
                return
            if self.chance.random() < self.failing_share:
                before = self.durable()
                self.group.on_append_failed(ErrorCode.NOT_ENOUGH_REPLICAS, self.now)
                assert self.durable() == before
                continue
            for record in append.records:
                self.log[encode_key(record)] = encode_value(record)
            self.group.on_appended(self.now)

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

    def pass_time(self, ms: int) -> None:
        self.now = Now(self.now.ms + ms, self.now.wall_ms + ms)
        while due := [key for key, at_ms in self.timers.items() if at_ms <= self.now.ms]:
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
            record for key, value in self.log.items() if (record := decode(key, value)) is not None
        ]
        self.group.restore(restored, self.now)
        self.run()
        assert self.durable() == before

    def durable(self) -> dict[str, object] | None:
        """A copy of what the log has; None without members, who may have left no trace."""
        data = self.data
        if data is None or not data.members:
            return None
        names = (
            *("epoch", "metadata_hash", "target_epoch", "target_computed_ms", "members"),
            *("targets", "owners", "instances", "subscribers", "votes", "at_epoch"),
        )
        return {name: copy(getattr(data, name)) for name in names}

    # What happens.

    def step(self) -> None:
        chance = self.chance.random()
        client = self.chance.choice(self.clients) if self.clients else None
        if client is None or (chance < 0.12 and len(self.clients) < 6):
            self.join()
        elif chance < 0.6:
            self.beat(client)
        elif chance < 0.68:
            client.names = self.some_names()
            client.is_unsure = True
        elif chance < 0.73:
            self.leave(client)
        elif chance < 0.76:
            self.clients.remove(client)  # Without a word.
        elif chance < 0.80:
            self.topics.change(f"t{self.chance.randint(0, 3)}", self.chance.choice([0, 1, 2, 3]))
        elif chance < 0.83:
            self.remove(client)
        elif chance < 0.86:
            self.restart()
        elif chance < 0.90:
            client.regex = self.chance.choice(["t.*", "t[01]", ""])
            client.is_unsure = True
            self.resolve()
        elif chance < 0.93:
            self.lie(client)
        else:
            self.pass_time(self.chance.choice([10, 500, INTERVAL_MS, 5_000, REVOCATION_MS]))
        self.check()

    def some_names(self) -> tuple[str, ...]:
        return tuple(self.chance.sample(["t0", "t1", "t2", "t3"], self.chance.randint(0, 3)))

    def join(self) -> None:
        self.ids += 1
        instance = f"i{self.chance.randint(0, 2)}" if self.chance.random() < 0.4 else None
        client = Client(f"m{self.ids}", instance, self.some_names())
        self.clients.append(client)
        self.beat(client)

    def beat(self, client: Client) -> None:
        chance = self.chance.random()
        if chance < 0.7:
            client.revoke()
        result = self.heartbeat(client.request(states_owned=self.chance.random() < 0.7))
        if chance > 0.93:
            client.is_unsure = True  # The answer is lost.
        else:
            client.take(result)

    def leave(self, client: Client) -> None:
        epoch = LEFT
        if client.instance_id is not None and self.chance.random() < 0.6:
            epoch = LEFT_FOR_RESTART
        self.heartbeat(HeartbeatRequest(client.member_id, epoch, client.instance_id))
        self.clients.remove(client)

    def remove(self, client: Client) -> None:
        membership = self.group.membership
        if isinstance(membership, ConsumerMembership):
            at_once(membership.leave_steps([LeaveEntry(client.member_id)], "ticket", self.now))
            self.run()

    def resolve(self) -> None:
        membership = self.group.membership
        if isinstance(membership, ConsumerMembership) and membership.needs_resolution(self.now.ms):
            at_once(membership.resolve(lambda _: True, self.now))
            self.run()

    def lie(self, client: Client) -> None:
        """Send what no client should."""
        epoch = self.chance.choice([client.epoch - 1, client.epoch + 1, client.epoch])
        owned = frozenset({(bytes(16), 1), *self.some_partitions()})
        request = HeartbeatRequest(client.member_id, max(epoch, 1), client.instance_id, owned=owned)
        self.heartbeat(request)
        client.is_unsure = client.has_lied = True

    def some_partitions(self) -> list[Partition]:
        return [
            (topic.topic_id, self.chance.randrange(topic.partition_count))
            for topic in self.topics.by_name.values()
        ]

    # What must hold.

    def check(self) -> None:
        data = self.data
        if data is None:
            return
        owners: dict[Partition, str] = {}
        for member in data.members.values():
            for partition in (*member.assigned, *member.pending):
                assert owners.setdefault(partition, member.member_id) == member.member_id
            assert member.epoch <= data.target_epoch
            assert member.epoch == LEFT_FOR_RESTART or member.epoch >= 0
            assert (member.state is MemberState.UNREVOKED_PARTITIONS) == bool(member.pending)
        assert owners == data.owners
        assert data.target_epoch <= data.epoch
        assert self.last <= (data.epoch, data.target_epoch)
        assert data.epoch >= self.last[0]
        self.last = (data.epoch, data.target_epoch)
        assert self.bumps == data.epoch - 1
        for client in self.clients:
            known = data.members.get(client.member_id)
            if known is None or client.has_lied:
                continue
            if client.epoch and client.epoch == known.epoch:
                assert client.hands <= known.assigned.keys() | known.pending.keys()

    def settle(self) -> None:
        """Without changes, the group converges while everybody sends heartbeats."""
        self.failing_share = 0
        self.pass_time(SESSION_MS)  # Those that died are removed.
        for _ in range(4):
            self.pass_time(INTERVAL_MS)
            self.resolve()
            for client in self.clients:
                client.revoke()
                client.take(self.heartbeat(client.request(states_owned=True)))
                client.revoke()
                client.take(self.heartbeat(client.request(states_owned=True)))
        data = self.data
        if data is None or not data.members:
            return
        assert data.state == "Stable"
        subscribed = {
            (topic.topic_id, partition)
            for name in data.subscribed_topics()
            if (topic := self.topics.get(name)) is not None
            for partition in range(topic.partition_count)
        }
        assert data.owners.keys() == subscribed


def live(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()
    world.check()
    world.restart()


@pytest.mark.parametrize("seed", range(40))
def test_a_group_keeps_its_promises(seed: int) -> None:
    live(seed)


@pytest.mark.long
def test_many_groups_keep_their_promises() -> None:
    for seed in range(10_000):
        live(seed)
