"""A share group under random members and topics, with failed appends and restarts from the log."""

import random
from collections import Counter

import pytest

from kohort.groups.events import SharePartitionsForgotten, SharePartitionsInitialized
from kohort.groups.share.data import ShareSettings
from kohort.groups.share.requests import ShareHeartbeatRequest
from kohort.groups.share.write import ASSIGN_TIMER
from kohort.groups.topics import Partition
from kohort.protocol.errors import ErrorCode
from tests.support.groups.share_group import ShareGroup

NAMES = ("t0", "t1", "t2", "t3")
INTERVAL_MS = 1_000
SESSION_MS = 45_000
STEPS = 150


class World(ShareGroup):
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        interval_ms = self.chance.choice([0, INTERVAL_MS])
        super().__init__(ShareSettings(SESSION_MS, assignment_interval_ms=interval_ms, max_size=6))
        self.ids = 0
        self.failing_share = 0.05
        self.with_state: set[Partition] = set()
        """The partitions that have state by the events."""
        self.seen_events = 0
        for name in NAMES[:3]:
            self.topics.change(name, self.chance.randint(1, 5))

    def append_fails(self) -> bool:
        return self.chance.random() < self.failing_share

    def some_names(self) -> tuple[str, ...]:
        return tuple(self.chance.sample(NAMES, self.chance.randint(1, 3)))

    def step(self) -> None:
        chance = self.chance.random()
        members = list(self.state.members) if self.group.membership else []
        member_id = self.chance.choice(members) if members else ""
        if not members or chance < 0.15:
            self.ids += 1
            result = self.join(f"m{self.ids}", *self.some_names())
            if not result.error and not self.group.is_dead:
                self.check_answer(result.member_id or "", result.epoch)
        elif chance < 0.55:
            result = self.beat(member_id)
            if not result.error:
                self.check_answer(member_id, result.epoch)
        elif chance < 0.63:
            epoch = self.state.members[member_id].epoch
            self.heartbeat(ShareHeartbeatRequest(member_id, epoch, topic_names=self.some_names()))
        elif chance < 0.66:
            request = ShareHeartbeatRequest(member_id, self.chance.randint(0, 30), rack_id="r")
            if request.epoch:
                self.heartbeat(request)
        elif chance < 0.74:
            self.leave(member_id)
        elif chance < 0.84:
            self.change_topic(self.chance.choice(NAMES), self.chance.choice([0, 1, 2, 3]))
        elif chance < 0.9:
            if self.chance.random() < 0.2:
                # The broker ends before the groups forget the topic.
                self.topics.change(self.chance.choice(NAMES), 0)
            self.restart()
            self.group.forget_lost_topics(self.now)
            self.run()
        else:
            self.pass_time(self.chance.choice([10, 500, INTERVAL_MS, 30_000, SESSION_MS]))
        self.check()

    def check_answer(self, member_id: str, epoch: int) -> None:
        member = self.state.members[member_id]
        assert member.epoch == epoch == self.state.target_epoch

    def check(self) -> None:
        if self.group.membership is None:
            return
        state = self.state
        for event in self.events[self.seen_events :]:
            if isinstance(event, SharePartitionsInitialized):
                added = {(key, n) for key, (_, numbers) in event.topics.items() for n in numbers}
                assert not added & self.with_state
                known = {topic_id for topic_id, _ in self.with_state}
                assert event.grown == event.topics.keys() & known
                self.with_state |= added
            elif isinstance(event, SharePartitionsForgotten):
                assert set(event.partitions) <= self.with_state
                self.with_state -= set(event.partitions)
        self.seen_events = len(self.events)
        stored = {(key, n) for key, topic in state.initialized.items() for n in topic.partitions}
        assert stored == self.with_state
        assert state.epoch >= state.target_epoch
        assert self.account.count == len(state.members)
        assert self.account.memory.used_bytes == state.size()
        living = {topic.topic_id for topic in self.topics.by_name.values()}
        for member in state.members.values():
            assert member.epoch <= state.target_epoch
            names = {self.topics.name_of(key) for key, _ in member.assigned if key in living}
            assert names <= set(member.topic_names)
            # S11, first half.
            assert {p for p in member.assigned if p[0] in living} <= stored
        # Members have a session that ends by itself, and an assignment a timer while it waits.
        assert self.membership.data.sessions.keys() == state.members.keys()
        assert {key.member_id for key in self.timers if key.member_id} == state.members.keys()
        assert state.epoch > state.target_epoch or ASSIGN_TIMER not in self.timers

    def settle(self) -> None:
        """Let every member send heartbeats until nothing changes."""
        self.failing_share = 0
        for _ in range(2):
            for member_id in self.state.members:
                self.beat(member_id)
            self.pass_time(INTERVAL_MS)
        for member_id in self.state.members:
            self.beat(member_id)
        self.check()
        state = self.state
        assert state.epoch == state.target_epoch or not state.members
        subscribers: dict[str, list[str]] = {}
        for member in state.members.values():
            assert member.epoch == state.epoch
            assert member.assigned == state.targets[member.member_id]
            for name in member.topic_names:
                subscribers.setdefault(name, []).append(member.member_id)
        counts = Counter(p for member in state.members.values() for p in member.assigned)
        for name, members in subscribers.items():
            topic = self.topics.get(name)
            for number in range(0 if topic is None else topic.partition_count):
                assert topic is not None
                # S11, second half.
                assert number in state.initialized[topic.topic_id].partitions
                assert 1 <= counts[topic.topic_id, number] <= len(members)
        before = len(self.appended)
        for member_id in state.members:
            assert self.beat(member_id).assigned is None
        assert len(self.appended) == before


@pytest.mark.parametrize("seed", range(60))
def test_share_groups_keep_their_rules(seed: int, long_form: bool) -> None:
    for number in range(seed * 100, seed * 100 + (100 if long_form else 1)):
        world = World(number)
        world.join("m0", "t0")
        for _ in range(STEPS):
            world.step()
        if world.group.membership is not None:
            world.settle()


def test_a_failed_append_changes_nothing() -> None:
    world = World(0)
    world.failing_share = 1
    assert world.join("m1", "t0").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group.membership is None
    assert not world.events
