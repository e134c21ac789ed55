"""A consumer group under random members, which lose answers, send late, die, return and lie about
what they own, with failed appends and restarts from the log: the properties of KIP-848 hold.
"""

import random
from operator import attrgetter

import pytest

from kohort.groups.consumer.member import MemberState
from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.consumer.requests import HeartbeatRequest
from kohort.groups.events import Event, RebalanceAvoided, RebalanceStarted, TriggerKind
from kohort.groups.history.model import RebalanceRecord
from kohort.groups.history.names import MemberFate, RebalanceOutcome
from kohort.groups.requests import LeaveEntry
from kohort.groups.steps import at_once
from kohort.groups.topics import Partition
from tests.support.groups.consumer_group import (
    INTERVAL_MS,
    REVOCATION_MS,
    SESSION_MS,
    Client,
    ConsumerGroup,
)

STEPS = 120
LEFT = -1
LEFT_FOR_RESTART = -2


class World(ConsumerGroup):
    """A group whose clients and appends do as chance has it."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(seed)
        for number in range(3):
            self.topics.change(f"t{number}", self.chance.randint(1, 5))
        self.clients: list[Client] = []
        self.ids = 0
        self.last = (0, 0)
        self.failing_share = 0.05
        self.shares_appends = True

    def append_fails(self) -> bool:
        return self.failing_share > 0 and self.chance.random() < self.failing_share

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
        elif chance < 0.96:
            self.beat_together()
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

    def beat_together(self) -> None:
        """Let several members join, change, go on and leave in one event loop iteration."""
        requests: dict[int, Client] = {}
        senders: set[str] = set()
        sent: list[HeartbeatRequest] = []
        for _ in range(self.chance.randint(2, 12)):
            chance = self.chance.random()
            if chance < 0.3 or not self.clients:
                self.ids += 1
                instance = f"i{self.chance.randint(0, 2)}" if self.chance.random() < 0.3 else None
                self.clients.append(Client(f"m{self.ids}", instance, self.some_names()))
                client = self.clients[-1]
            else:
                client = self.chance.choice(self.clients)
                client.revoke()
            # A client waits for its answer.
            client.has_lied |= client.member_id in senders
            senders.add(client.member_id)
            if 0.3 < chance < 0.45:
                epoch = LEFT if client.instance_id is None else LEFT_FOR_RESTART
                sent.append(HeartbeatRequest(client.member_id, epoch, client.instance_id))
                client.epoch, client.is_unsure = 0, True
                client.hands.clear()
                continue
            requests[len(sent)] = client
            sent.append(client.request(states_owned=self.chance.random() < 0.7))
        results = self.heartbeats(sent, shares_append=self.shares_appends)
        for number, client in requests.items():
            client.take(results[number])

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


def check_record(record: RebalanceRecord) -> None:
    """Each bump has one cause, and the times of members are in order."""
    assert record.group_type == "consumer"
    assert record.trigger.kind.value != "downgraded"
    causes = 1 + len(record.further_causes) + record.further_causes_dropped
    is_stable = record.outcome is RebalanceOutcome.STABLE
    if is_stable:
        assert record.generation == record.previous_generation + causes
    times = record.timeline
    assert_ordered(0, times.assigned_ms, times.durable_ms, times.finished_ms)
    assert (times.assigned_by is None) == (times.assigned_ms is None)
    for member in record.members:
        assert member.type == member.mode == "consumer"
        assert_ordered(0, member.told_ms, member.revoked_ms, member.reached_ms, member.completed_ms)
        assert_ordered(times.durable_ms or 0, member.reached_ms, times.finished_ms)
        if is_stable and member.fate in {MemberFate.KEPT, MemberFate.NEW}:
            assert member.completed_ms is not None
            assert member.epoch == record.generation
    assert record.partitions.moved <= record.partitions.gained


def assert_ordered(*times: int | None) -> None:
    known = [time for time in times if time is not None]
    assert known == sorted(known)


def live(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.settle()
    world.check()
    for record in world.rebalances:
        check_record(record)
    world.restart()


@pytest.mark.parametrize("seed", range(40))
def test_a_group_keeps_its_promises(seed: int) -> None:
    live(seed)


def values(world: World) -> dict[bytes, bytes | None]:
    return {key: value for key, (value, _) in world.log.items()}


def refuses(event: Event) -> bool:
    if not isinstance(event, RebalanceAvoided):
        return False
    return event.trigger.kind is TriggerKind.MEMBER_REFUSED


def seen(world: World, *, is_refusal: bool) -> list[Event]:
    """Refusals, or all other events; the order of a group's members has no meaning."""
    return [
        event._replace(members=tuple(sorted(event.members, key=attrgetter("member_id"))))
        if isinstance(event, RebalanceStarted)
        else event
        for event in world.events
        if refuses(event) is is_refusal
    ]


def live_together(seed: int) -> None:
    """Heartbeats that share appends have the same effects as with one append each."""
    together, single = World(seed), World(seed)
    single.shares_appends = False
    for world in (together, single):
        world.failing_share = 0
    for _ in range(STEPS // 2):
        for world in (together, single):
            world.beat_together()
            world.check()
            world.pass_time(world.chance.choice([0, 0, 10, INTERVAL_MS, REVOCATION_MS]))
            if world.chance.random() < 0.2:
                world.topics.change(f"t{world.chance.randint(0, 3)}", world.chance.randint(0, 3))
            if world.clients and world.chance.random() < 0.2:
                world.clients[0].regex = world.chance.choice(["t.*", "t[01]", ""])
                world.clients[0].is_unsure = True
            world.resolve()
        # A refusal needs no append, so others' changes may be noted after it.
        for is_refusal in (False, True):
            assert seen(together, is_refusal=is_refusal) == seen(single, is_refusal=is_refusal)
        # Headers say how a rebalance began, which nobody reads once its target is in the log.
        assert values(together) == values(single)
        assert together.durable() == single.durable()
        assert together.timers == single.timers
        assert [vars(client) for client in together.clients] == [
            vars(client) for client in single.clients
        ]
    together.restart()
    assert together.append_count < single.append_count


@pytest.mark.parametrize("seed", range(20))
def test_heartbeats_share_an_append_as_if_each_had_its_own(seed: int) -> None:
    live_together(seed)


@pytest.mark.long
def test_many_groups_keep_their_promises() -> None:
    for seed in range(10_000):
        live(seed)
        live_together(seed)
