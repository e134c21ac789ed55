"""Random walks through the life of a group, step by step the same at Kafka and here.

No step is taken that leads to a deliberate difference. There are never more than two members: who
leads after the leader has gone, and how many votes make a tie, are the order of a hash table there.
"""

import random
from typing import NamedTuple

import pytest

from kohort.protocol.errors import ErrorCode
from tests.interop.same_answers.each import for_broker
from tests.interop.same_answers.groups import Group, Member, plus, subscription
from tests.interop.same_answers.offsets import (
    commit_request,
    commit_topic,
    delete_request,
    fetch_request,
)
from tests.interop.same_answers.pair import Pair, Pending
from tests.interop.same_answers.scenes import Topic
from tests.support import messages as m

STEPS = 60
MEMBERS_MAX = 2
OFFERS = (
    *[{"range": subscription("a")}] * 4,
    {"range": subscription("b")},
    {"range": subscription("a"), "sticky": subscription("a")},
    {"sticky": subscription("a")},
)
STEADY = {"CompletingRebalance", "Stable"}
"""There Kafka begins a rebalance when an unused id is given back, and we do not."""


class Waiting(NamedTuple):
    """A request that has not been answered."""

    member: Member
    pending: Pending
    is_join: bool


class Walk:
    """One group and everybody who ever had to do with it."""

    def __init__(self, pair: Pair, topic: Topic, seed: int) -> None:
        self.pair = pair
        self.topic = topic
        self.random = random.Random(seed)
        self.group = Group(pair, what=f"walk-{seed}")
        self.members: list[Member] = []
        self.unused: list[Member] = []
        """With an id that they have not joined with."""
        self.gone: list[Member] = []
        self.waiting: list[Waiting] = []
        self.state = "Dead"
        self.names = 0

    def step(self) -> None:
        steps = (
            *(self.newcomer, self.newcomer, self.use_id, self.use_id, self.static, self.static),
            *(self.rejoin, self.rejoin, self.sync, self.sync, self.sync, self.assign, self.assign),
            *(self.heartbeat, self.heartbeat, self.leave, self.commit, self.fetch),
            *(self.give_back, self.delete_group, self.delete_offsets, self.ask_strangely),
        )
        self.random.choice(steps)()
        self.collect()

    def collect(self) -> None:
        """Take the answers that there are, and look at the group."""
        for one in list(self.waiting):
            if not one.pending.is_parked(for_s=0.02):
                one.pending.answers()
                self.waiting.remove(one)
        found = self.group.describe(6)
        self.state = found.group_state
        there = {member.member_id for member in found.members}
        everybody = [*self.members, *self.unused, *self.gone]
        self.members = [one for one in everybody if for_broker(one.id, "kafka") in there]
        waits = [one.member for one in self.waiting if one.is_join and not one.member.id]
        self.members += waits
        if self.state == "Dead":
            self.unused = []
        self.gone = [one for one in everybody if one not in self.members + self.unused][-4:]
        self.unused = [one for one in self.unused if one not in self.members]

    def idle(self) -> list[Member]:
        """Members whose requests are all answered."""
        busy = [one.member for one in self.waiting]
        return [member for member in self.members if member.id and member not in busy]

    @property
    def is_full(self) -> bool:
        return len(self.members) + len(self.unused) >= MEMBERS_MAX

    def join(self, member: Member, version: int) -> None:
        self.waiting.append(Waiting(member, member.join(version), is_join=True))

    def newcomer(self) -> None:
        if self.is_full:
            return
        self.names += 1
        offer = self.random.choice(OFFERS)
        member = self.group.member(f"member-{self.names}", protocols=offer)
        version = self.random.randrange(10)
        if version < 4:
            self.join(member, version)
            return
        answers = member.join(version).answers()
        if answers.kafka.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.unused.append(member)
            if self.state == "Dead":  # Kafka answers before it has written that it is there.
                self.group.wait_state("Empty")

    def use_id(self) -> None:
        if self.unused:
            member = self.unused.pop(0)
            self.members.append(member)
            self.join(member, self.random.randrange(4, 10))

    def static(self) -> None:
        name = self.random.choice(["static-1", "static-2"])
        if self.is_full and not any(member.name == name for member in self.members):
            return
        if any(one.member.name == name and not one.member.id for one in self.waiting):
            return
        member = self.group.member(name, instance=name, protocols=self.random.choice(OFFERS))
        self.join(member, self.random.randrange(5, 10))

    def rejoin(self) -> None:
        for member in self.random.sample(self.idle(), k=min(1, len(self.idle()))):
            if self.random.random() < 0.5:
                member.protocols = self.random.choice(OFFERS)
            version = self.random.randrange(5, 10)
            self.join(member, version)

    def sync(self, *, assign: bool = False) -> None:
        if not self.idle():
            return
        member = self.random.choice(self.idle())
        changes = {}
        if self.random.random() < 0.2:
            generation = plus(member.generation, self.random.choice([-1, 1]))
            changes = {"generation_id": generation}
        version = self.random.randrange(6)
        known = [one for one in self.members if one.id] if assign else None
        found = self.group.describe(6)
        if version == 5 and found.protocol_data:
            changes["protocol_name"] = found.protocol_data
        pending = member.sync(version, assign=known, **changes)
        self.waiting.append(Waiting(member, pending, is_join=False))

    def assign(self) -> None:
        self.sync(assign=True)

    def heartbeat(self) -> None:
        everybody = [one for one in [*self.members, *self.unused, *self.gone] if one.id]
        if everybody:
            member = self.random.choice(everybody)
            member.heartbeat(self.random.randrange(5))
            member.heartbeat(4, generation_id=plus(member.generation, self.random.choice([-1, 1])))

    def leave(self) -> None:
        if self.random.random() < 0.5 or not self.members:
            return
        member = self.random.choice(self.members)
        syncs = [one.member for one in self.waiting if not one.is_join]
        if not member.id or member in syncs:
            return
        by_instance = member.instance is not None and self.random.random() < 0.5
        identity = m.MemberIdentity(
            member_id="" if by_instance else member.id,
            group_instance_id=member.instance if by_instance else None,
        )
        self.group.leave(identity, version=self.random.randrange(3, 6))

    def give_back(self) -> None:
        if self.unused and self.state not in STEADY:
            self.group.leave(self.unused.pop(), version=self.random.randrange(6))

    def commit(self) -> None:
        everybody = [one for one in [*self.members, *self.gone] if one.id]
        member = self.random.choice([None, *everybody])
        offset = self.random.randrange(100)
        request = commit_request(
            self.group, commit_topic(self.topic, {0: offset, 1: offset, 7: 1}), member=member
        )
        self.pair.ask(request, self.random.randrange(2, 11))

    def fetch(self) -> None:
        version = self.random.randrange(1, 11)
        self.pair.ask(fetch_request(self.group, version, {self.topic: range(4)}), version)

    def delete_group(self) -> None:
        if self.random.random() < 0.3:
            self.pair.ask(m.DeleteGroupsRequest(groups_names=[self.group.id]), 2)

    def delete_offsets(self) -> None:
        self.pair.ask(delete_request(self.group, {self.topic.name: [0, 5]}), 0)

    def ask_strangely(self) -> None:
        stranger = self.group.member("stranger")
        stranger.id, stranger.generation = "nobody", self.random.randrange(3)
        stranger.heartbeat(4)
        stranger.sync(5).answers()
        stranger.join(9).answers()
        stranger.leave()


SEEDS = [
    pytest.param(seed, marks=() if seed < 2 else pytest.mark.long) for seed in (*range(30), 94)
]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_walk(pair: Pair, group_topic: Topic, seed: int) -> None:
    walk = Walk(pair, group_topic, seed)
    for _ in range(STEPS):
        walk.step()
