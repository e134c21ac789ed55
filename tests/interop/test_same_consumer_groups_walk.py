"""Random walks of consumer groups (KIP-848): both brokers answer each step alike, and describe the
group alike after it. In half of the walks there is a member of the classic protocol, too, and the
group becomes a classic one when the last consumer leaves. In a quarter, members subscribe by a
regular expression.

No answer depends on time: targets are computed at once, no session ends, and a step waits until
both brokers know of a changed topic.

Ties between members are decided by their order, which is that of a hash map in Kafka and of ids
here: member ids and numbers of partitions are chosen so that both are the same. No step is taken
that leads to a deliberate difference, such as a tie of votes for assignors.
"""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple

import pytest

from kohort.broker.core.coordinator_partitions import partition_of
from kohort.protocol.codec import decode_versioned, encode_versioned
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import consumer_group_describe as describing
from kohort.protocol.messages import consumer_group_heartbeat as beating
from kohort.protocol.messages import incremental_alter_configs as altering
from tests.interop.same_answers.pair import TWIN_SETTINGS, Pair, Side
from tests.interop.same_answers.scenes import fresh_name
from tests.support import messages as m
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

SEEDS: Final = 2_000
BATCH: Final = 50
"""Walks of one test."""
BATCH_SHORT: Final = 16
AT_ONCE: Final = 8
"""Walks under way: most of a walk is waiting for Kafka."""
STEPS: Final = 40
MEMBERS_MAX: Final = 4
BUCKETS: Final = 16
"""Of a small hash map of Java. Members are fewer: MEMBERS_MAX, and classic ones that became
consumers."""
PARTITIONS_MAX: Final = BUCKETS
"""Of a topic. A member that has to give up some of its partitions keeps those that come first: in
Kafka that is the order of a hash set of Java, which begins with 0, 16, 1 if there are more."""
TIMEOUT_MS: Final = 1_800_000
"""Of sessions and rebalances: no timer removes a member, which both would do at different steps."""
GROUP: Final = 32
"""Resource type of the configs of a group."""
NOT_READY: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}

Partitions = frozenset[tuple[str, int]]


class Answer(NamedTuple):
    """What both brokers must say alike."""

    error: int
    member_id: str | None
    epoch: int
    interval_ms: int
    assigned: Partitions | None
    """None if nothing is said of them."""


class Seat:
    """One member at one broker."""

    def __init__(self) -> None:
        self.epoch = 0
        self.previous = 0
        self.owned: Partitions = frozenset()
        self.target: Partitions = frozenset()


class Classic:
    """A member of both groups that uses the classic protocol."""

    def __init__(self, member_id: str, names: list[str]) -> None:
        self.member_id = member_id
        self.names = names
        self.seats = {"kafka": Seat(), "kohort": Seat()}
        """`epoch` is its generation."""
        self.leads = False
        """Whether the group is a classic one, in which it assigns."""


class Member:
    """A member of both groups."""

    def __init__(self, member_id: str, instance_id: str | None, names: list[str]) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.names = names
        self.regex: str | None = None
        """None in a group without expressions."""
        self.assignor: str | None = None
        self.seats = {"kafka": Seat(), "kohort": Seat()}


def java_bucket(text: str) -> int:
    """Where a small hash map of Java keeps a text."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return (value ^ (value >> 16)) % BUCKETS


def named(assignment: describing.Assignment) -> list[tuple[str, int]]:
    """Return the partitions of an assignment."""
    return sorted((t.topic_name, n) for t in assignment.topic_partitions for n in t.partitions)


def view(group: describing.DescribedGroup, *, with_targets: bool) -> object:
    """Return what both must show alike, with the state and the targets or without."""
    members = sorted(
        (
            member.member_id,
            member.instance_id,
            member.member_epoch,
            member.member_type,
            sorted(member.subscribed_topic_names),
            member.subscribed_topic_regex,
            named(member.assignment),
            named(member.target_assignment) if with_targets else [],
        )
        for member in group.members
    )
    state = (group.group_state, group.assignment_epoch) if with_targets else None
    return group.error_code, group.group_epoch, state, group.assignor_name, members


def log_partition(group: str) -> int:
    """Where a group is stored, which decides on its coordinator's state."""
    return partition_of(group, int(TWIN_SETTINGS["offsets.topic.num.partitions"]))


def alike(group: str) -> altering.IncrementalAlterConfigsRequest:
    """Configs with which a group computes targets at once, tells an interval as in Kafka, and
    keeps silent members.
    """
    configs = {
        "consumer.assignment.interval.ms": "0",
        "consumer.heartbeat.interval.ms": "5000",
        "consumer.session.timeout.ms": str(TIMEOUT_MS),
    }
    resource = altering.AlterConfigsResource(
        resource_type=GROUP,
        resource_name=group,
        configs=[
            altering.AlterableConfig(name=name, config_operation=0, value=value)
            for name, value in configs.items()
        ],
    )
    return altering.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)


class Walk:
    """A group of the same id at both brokers, and its members."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.chance = random.Random(seed)
        self.sides = pair.sides
        self.clients = {side.name: RawClient(side.port) for side in pair.sides}
        self.group = fresh_name(f"walk-{seed}")
        self.topics = [fresh_name(f"t{number}") for number in range(3)]
        self.counts: dict[str, int] = {}
        self.ids: dict[str, dict[str, bytes]] = {side.name: {} for side in pair.sides}
        self.members: list[Member] = []
        self.classic: Classic | None = None
        self.has_classic = seed % 4 > 1
        self.made = 0
        self.is_homogeneous = seed % 2 == 0
        """Whether all members have the same topic. A member never has several: in which order the
        assignor takes them depends on their ids, which are others at each broker."""
        self.vote = self.chance.choice(["range", "uniform"])
        self.answers: list[object] = []
        self.prepare()
        for topic in self.topics[:2]:
            self.create(topic)
        self.anchor: Member | None = None
        """Subscribes to the group's expression to the end of the walk: without subscribers it would
        be forgotten, and resolved again only after ten seconds."""
        if seed % 8 in {0, 6}:
            self.add_anchor()

    def call(self, side: Side, request: object, version: int, response: type[Any]) -> Any:  # noqa: ANN401
        return self.clients[side.name].call(request, version, response)

    def prepare(self) -> None:
        request = alike(self.group)
        for side in self.sides:
            answer = self.call(side, request, 1, altering.IncrementalAlterConfigsResponse)
            assert answer.responses[0].error_code == 0
            wait_until(partial(self.is_coordinated, side), "there is a coordinator")
            self.describe(side)

    def is_coordinated(self, side: Side) -> bool:
        find = m.FindCoordinatorRequest(key=self.group, key_type=0)
        return not self.call(side, find, 3, m.FindCoordinatorResponse).error_code

    # Topics.

    def create(self, topic: str) -> None:
        self.counts[topic] = self.chance.randint(1, 6)
        request = m.CreateTopicsRequest(
            topics=[
                m.CreatableTopic(
                    name=topic,
                    num_partitions=self.counts[topic],
                    replication_factor=1,
                    assignments=[],
                    configs=[],
                )
            ],
            timeout_ms=60_000,
        )
        for side in self.sides:
            self.call(side, request, 7, m.CreateTopicsResponse)
        self.wait_topic(topic)

    def wait_topic(self, topic: str) -> None:
        """Until both brokers have it with all its partitions, or no longer have it."""
        count = self.counts.get(topic, 0)
        request = m.MetadataRequest(
            topics=[m.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )

        def is_so(side: Side) -> bool:
            (found,) = self.call(side, request, 12, m.MetadataResponse).topics
            self.ids[side.name][topic] = found.topic_id
            return len(found.partitions) == count and self.is_assigned(side, topic, count)

        for side in self.sides:
            wait_until(partial(is_so, side), f"{topic} has {count} partitions")

    def is_assigned(self, side: Side, topic: str, count: int) -> bool:
        """Whether another group of the same coordinator is assigned so many partitions: in Kafka
        it learns of topics after others have, and marks the groups that are to look at them.
        """
        group = self.group
        while group == self.group or log_partition(group) != log_partition(self.group):
            group = fresh_name("probe")
        request = beating.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="probe",
            member_epoch=0,
            rebalance_timeout_ms=1_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
        answer = self.call(side, request, 1, beating.ConsumerGroupHeartbeatResponse)
        listed = answer.assignment.topic_partitions if answer.assignment else []
        return sum(len(assigned.partitions) for assigned in listed) == count

    def change_topic(self) -> None:
        topic = self.chance.choice(self.topics[: 1 if self.is_homogeneous else 3])
        if topic not in self.counts:
            self.create(topic)
            self.notice()
            return
        request: object
        if self.is_homogeneous or self.chance.random() < 0.7:
            grown = self.counts[topic] + self.chance.randint(1, 3)
            self.counts[topic] = min(grown, PARTITIONS_MAX)
            wanted = m.CreatePartitionsTopic(name=topic, count=self.counts[topic], assignments=None)
            request = m.CreatePartitionsRequest(
                topics=[wanted], timeout_ms=60_000, validate_only=False
            )
            for side in self.sides:
                self.call(side, request, 3, m.CreatePartitionsResponse)
        else:
            del self.counts[topic]
            gone = m.DeleteTopicState(name=topic, topic_id=bytes(16))
            request = m.DeleteTopicsRequest(topics=[gone], timeout_ms=60_000)
            for side in self.sides:
                self.call(side, request, 6, m.DeleteTopicsResponse)
        self.wait_topic(topic)
        self.notice()

    def notice(self) -> None:
        """The next heartbeat counts the change."""
        if self.members:
            self.beat(self.members[0])

    # Heartbeats.

    def new_id(self) -> str:
        """An id whose place in Java's hash map is that in the order of ids."""
        ids = [member.member_id for member in self.members]
        if self.classic is not None:
            ids.append(self.classic.member_id)
        used = {int(member_id[0], BUCKETS) for member_id in ids}
        slot = min(set(range(BUCKETS)) - used)
        while True:
            self.made += 1
            member_id = f"{slot:x}-{self.made:06d}-{self.group}"
            if java_bucket(member_id) == slot:
                return member_id

    def beat(
        self,
        member: Member,
        *,
        epoch: Callable[[Seat], int] = lambda seat: seat.epoch,
        owned: Callable[[Seat], Partitions | None] = lambda _: None,
        **fields: Any,  # noqa: ANN401
    ) -> Answer:
        """Send a heartbeat to both, and compare the answers."""
        answers = []
        for side in self.sides:
            seat = member.seats[side.name]
            partitions = owned(seat)
            request = beating.ConsumerGroupHeartbeatRequest(
                group_id=self.group,
                member_id=member.member_id,
                member_epoch=epoch(seat),
                topic_partitions=None if partitions is None else self.by_id(side, partitions),
                **fields,
            )
            answer = self.call(side, request, 1, beating.ConsumerGroupHeartbeatResponse)
            assigned = None
            if not answer.error_code:
                seat.previous, seat.epoch = seat.epoch, answer.member_epoch
                if answer.assignment is not None:
                    assigned = self.by_name(side, answer.assignment.topic_partitions)
                    seat.target = assigned
            answers.append(
                Answer(
                    answer.error_code,
                    answer.member_id,
                    answer.member_epoch,
                    answer.heartbeat_interval_ms,
                    assigned,
                )
            )
        self.answers.append((member.member_id, fields, *answers))
        kafka, kohort = answers
        assert kafka == kohort, self.answers[-8:]
        return kafka

    def by_id(self, side: Side, partitions: Partitions) -> list[beating.TopicPartitions]:
        ids = self.ids[side.name]
        return [
            beating.TopicPartitions(topic_id=ids[topic], partitions=[partition])
            for topic, partition in sorted(partitions)
        ]

    def by_name(self, side: Side, listed: list[beating.TopicPartitions]) -> Partitions:
        names = {topic_id: name for name, topic_id in self.ids[side.name].items()}
        return frozenset(
            (names.get(topic.topic_id, "?"), partition)
            for topic in listed
            for partition in topic.partitions
        )

    def join(self, member: Member) -> Answer:
        return self.beat(
            member,
            epoch=lambda _: 0,
            owned=lambda _: frozenset(),
            rebalance_timeout_ms=TIMEOUT_MS,
            subscribed_topic_names=member.names,
            subscribed_topic_regex=member.regex,
            instance_id=member.instance_id,
            server_assignor=member.assignor,
        )

    # Steps.

    def step(self) -> None:
        steps: tuple[Callable[[Member], None], ...] = (
            *(self.stay, self.stay, self.stay, self.acknowledge, self.acknowledge),
            *(self.acknowledge, self.leave, self.leave_for_restart, self.subscribe),
            *(self.send_wrong_epoch, self.rejoin, self.choose_assignor, self.commit, self.commit),
            *(self.fetch, self.remove, self.own_others),
        )
        chance = self.chance.random()
        if chance < 0.14 or not self.members:
            self.add_member()
        elif chance < 0.18:
            self.change_topic()
        elif chance < 0.45 and self.has_classic:
            self.step_classic()
        else:
            self.chance.choice(steps)(self.chance.choice(self.members))
        self.compare()

    def some_names(self, least: int = 0) -> list[str]:
        if self.is_homogeneous:
            return self.topics[:1]
        return self.chance.sample(self.topics, self.chance.randint(least, 1))

    def add_anchor(self) -> None:
        """Wait until its expression is resolved, which both do after the answer."""
        self.anchor = Member(self.new_id(), None, [])
        self.anchor.regex = self.topics[0]
        self.join(self.anchor)
        self.members.append(self.anchor)

        def is_resolved() -> bool:
            return all(self.describe(side).group_epoch == 2 for side in self.sides)

        wait_until(is_resolved, "the expression is resolved")
        self.beat(self.anchor)

    def choose_topics(self, member: Member) -> None:
        """By name, by the group's expression if it has one, or by both."""
        member.names = self.some_names()
        if self.anchor is not None:
            member.regex = self.chance.choice(["", self.topics[0]])
            if member.regex and self.chance.random() < 0.7:
                member.names = []

    def add_member(self) -> None:
        if len(self.members) >= MEMBERS_MAX:
            return
        instance = f"i{self.chance.randint(1, 2)}" if self.chance.random() < 0.4 else None
        member = Member(self.new_id(), instance, self.some_names(least=1))
        if self.anchor is not None:
            self.choose_topics(member)
        member.assignor = self.chance.choice([None, None, self.vote])
        if not self.join(member).error:
            self.members.append(member)

    def stay(self, member: Member) -> None:
        self.beat(member)

    def acknowledge(self, member: Member) -> None:
        for seat in member.seats.values():
            seat.owned = seat.target
        if self.chance.random() < 0.3:
            self.beat(
                member,
                owned=lambda seat: seat.owned,
                rebalance_timeout_ms=TIMEOUT_MS,
                subscribed_topic_names=member.names,
                subscribed_topic_regex=member.regex,
                instance_id=member.instance_id,
            )
        else:
            self.beat(member, owned=lambda seat: seat.owned)

    def own_others(self, member: Member) -> None:
        """State some of the partitions that it was given, and perhaps one that it was not."""
        given = sorted(member.seats["kafka"].target)
        owned = self.chance.sample(given, self.chance.randint(0, len(given)))
        if self.chance.random() < 0.5:
            topic = self.chance.choice(sorted(self.ids["kafka"]))
            owned.append((topic, self.chance.randint(0, 6)))
        for seat in member.seats.values():
            seat.owned = frozenset(owned)
        self.beat(member, owned=lambda seat: seat.owned)

    def leave(self, member: Member) -> None:
        if member is self.anchor:
            return
        if not self.beat(member, epoch=lambda _: -1, instance_id=member.instance_id).error:
            self.forget(member)

    def forget(self, member: Member) -> None:
        """Another member's heartbeat computes the next target in Kafka; here a timer does."""
        self.members.remove(member)
        if self.members:
            self.beat(self.members[0])

    def leave_for_restart(self, member: Member) -> None:
        if member.instance_id is None:
            return
        if self.beat(member, epoch=lambda _: -2, instance_id=member.instance_id).error:
            return
        self.members.remove(member)
        restarted = Member(self.new_id(), member.instance_id, member.names)
        restarted.regex = member.regex
        if self.chance.random() < 0.3:
            self.choose_topics(restarted)
        if not self.join(restarted).error:
            self.members.append(restarted)

    def subscribe(self, member: Member) -> None:
        if member is not self.anchor:
            self.choose_topics(member)
        self.beat(
            member,
            subscribed_topic_names=member.names,
            subscribed_topic_regex=member.regex,
        )

    def send_wrong_epoch(self, member: Member) -> None:
        epochs: tuple[Callable[[Seat], int], ...] = (
            lambda seat: seat.epoch + 1,
            lambda seat: seat.previous,
            lambda seat: max(1, seat.epoch - 1),
            lambda _: -3,
        )
        if self.chance.random() < 0.5:
            self.beat(member, epoch=self.chance.choice(epochs))
        else:
            self.beat(member, epoch=self.chance.choice(epochs), owned=lambda seat: seat.owned)

    def rejoin(self, member: Member) -> None:
        if member.instance_id is None:
            for seat in member.seats.values():
                seat.owned = frozenset()
            self.join(member)

    def choose_assignor(self, member: Member) -> None:
        name = self.chance.choice([self.vote, "none", ""])
        if not self.beat(member, server_assignor=name).error:
            member.assignor = name

    def remove(self, member: Member) -> None:
        if member is self.anchor:
            return
        identity = m.MemberIdentity(member_id=member.member_id, group_instance_id=None)
        request = m.LeaveGroupRequest(group_id=self.group, members=[identity])
        kafka, kohort = (
            [one.error_code for one in self.call(side, request, 4, m.LeaveGroupResponse).members]
            for side in self.sides
        )
        assert kafka == kohort, self.answers[-8:]
        if kafka == [0]:
            self.forget(member)

    # The classic member.

    def step_classic(self) -> None:
        if self.classic is None:
            # Unknown ids are members at once; without one, Kafka makes an id, and ties differ.
            self.classic = Classic(self.new_id(), self.some_names(least=1))
            self.join_classic(self.classic)
            return
        steps = [self.join_classic, self.sync_classic, self.sync_classic, self.beat_classic]
        if not self.classic.leads:
            # An Empty classic group would begin at another epoch in Kafka.
            steps += [self.leave_classic, self.change_protocol]
        self.chance.choice(steps)(self.classic)

    def ask_classic(
        self, make: Callable[[Side, Seat], object], version: int, response: type[Any]
    ) -> list[tuple[Seat, Any]]:
        """Send a request of the classic member to both; return both answers."""
        assert self.classic is not None
        answers = []
        for side in self.sides:
            seat = self.classic.seats[side.name]
            answers.append((seat, self.call(side, make(side, seat), version, response)))
        self.answers.append((self.classic.member_id, *[answer for _, answer in answers]))
        kafka, kohort = (answer.error_code for _, answer in answers)
        assert kafka == kohort, self.answers[-8:]
        if kafka == ErrorCode.UNKNOWN_MEMBER_ID:
            self.classic = None
        return answers

    def join_classic(self, member: Classic) -> None:
        owns = self.chance.random() < 0.7

        def make(side: Side, seat: Seat) -> object:
            owned = [
                m.TopicPartition(topic=topic, partitions=[number])
                for topic, number in sorted(seat.target if owns else ())
            ]
            metadata = m.ConsumerProtocolSubscription(topics=member.names, owned_partitions=owned)
            offer = m.JoinGroupRequestProtocol(name="range", metadata=encode_versioned(metadata, 1))
            return m.JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=TIMEOUT_MS,
                rebalance_timeout_ms=TIMEOUT_MS,
                member_id=member.member_id,
                protocol_type="consumer",
                protocols=[offer],
            )

        answers = self.ask_classic(make, 9, m.JoinGroupResponse)
        views = []
        for seat, answer in answers:
            seat.epoch = answer.generation_id
            member.leads = bool(answer.leader)
            views.append((seat.epoch, answer.protocol_type, member.leads, len(answer.members)))
        assert views[0] == views[1], self.answers[-8:]

    def sync_classic(self, member: Classic) -> None:
        def make(side: Side, seat: Seat) -> object:
            del side
            topics = [
                m.TopicPartition(topic=topic, partitions=list(range(self.counts[topic])))
                for topic in member.names
                if topic in self.counts
            ]
            assignment = encode_versioned(
                m.ConsumerProtocolAssignment(assigned_partitions=topics), 1
            )
            share = m.SyncGroupRequestAssignment(member_id=member.member_id, assignment=assignment)
            return m.SyncGroupRequest(
                group_id=self.group,
                generation_id=seat.epoch,
                member_id=member.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=[share] if member.leads else [],
            )

        assignments = []
        for seat, answer in self.ask_classic(make, 5, m.SyncGroupResponse):
            if not answer.error_code:
                parsed, _ = decode_versioned(m.ConsumerProtocolAssignment, answer.assignment)
                listed = parsed.assigned_partitions
                seat.target = frozenset((t.topic, n) for t in listed for n in t.partitions)
                assignments.append((answer.assignment[:2], seat.target))
        assert len(set(assignments)) <= 1, self.answers[-8:]

    def beat_classic(self, member: Classic) -> None:
        def make(side: Side, seat: Seat) -> object:
            del side
            return m.HeartbeatRequest(
                group_id=self.group, generation_id=seat.epoch, member_id=member.member_id
            )

        self.ask_classic(make, 4, m.HeartbeatResponse)

    def leave_classic(self, member: Classic) -> None:
        identity = m.MemberIdentity(member_id=member.member_id, group_instance_id=None)
        request = m.LeaveGroupRequest(group_id=self.group, members=[identity])
        self.ask_classic(lambda side, seat: request, 4, m.LeaveGroupResponse)
        self.classic = None
        self.beat(self.members[0])

    def change_protocol(self, member: Classic) -> None:
        """The same member becomes a consumer."""
        consumer = Member(member.member_id, None, member.names)
        if not self.join(consumer).error:
            self.classic = None
            self.members.append(consumer)

    def commit(self, member: Member) -> None:
        epoch: Callable[[Seat], int] = self.chance.choice(
            [
                lambda seat: seat.epoch,
                lambda seat: seat.epoch + 1,
                lambda seat: max(0, seat.epoch - 1),
                lambda _: -1,
            ]
        )
        member_id = self.chance.choice([member.member_id, member.member_id, "stranger", ""])
        if self.classic is not None and self.chance.random() < 0.3:
            member_id = self.classic.member_id
        topic = self.chance.choice(self.topics)
        place = m.OffsetCommitRequestPartition(
            partition_index=self.chance.randint(0, 2), committed_offset=5, committed_metadata=""
        )
        results = []
        for side in self.sides:
            request = m.OffsetCommitRequest(
                group_id=self.group,
                generation_id_or_member_epoch=epoch(member.seats[side.name]),
                member_id=member_id,
                topics=[m.OffsetCommitRequestTopic(name=topic, partitions=[place])],
            )
            (found,) = self.call(side, request, 9, m.OffsetCommitResponse).topics
            results.append(found.partitions[0].error_code)
        assert results[0] == results[1], (results, self.answers[-8:])

    def fetch(self, member: Member) -> None:
        member_id, epoch = self.chance.choice(
            [
                (member.member_id, 0),
                (member.member_id, 1),
                (member.member_id, -1),
                (None, None),
                ("stranger", 0),
            ]
        )
        results = []
        for side in self.sides:
            asked = m.OffsetFetchRequestGroup(
                group_id=self.group,
                member_id=member_id,
                member_epoch=-1 if epoch is None else member.seats[side.name].epoch + epoch,
                topics=None,
            )
            request = m.OffsetFetchRequest(groups=[asked])
            (found,) = self.call(side, request, 9, m.OffsetFetchResponse).groups
            results.append(found.error_code)
        assert results[0] == results[1], (results, self.answers[-8:])

    # Descriptions.

    def describe(self, side: Side) -> describing.DescribedGroup:
        request = describing.ConsumerGroupDescribeRequest(
            group_ids=[self.group], include_authorized_operations=True
        )
        described: list[describing.DescribedGroup] = []

        def is_ready() -> bool:
            answer = self.call(side, request, 1, describing.ConsumerGroupDescribeResponse)
            described[:] = answer.groups
            return described[0].error_code not in NOT_READY

        wait_until(is_ready, "the coordinator is ready")
        return described[0]

    def compare(self) -> None:
        """Kafka shows what is committed, which may be a moment later. While it is Assigning, the
        target here is newer already.
        """
        views: list[object] = []

        def is_alike() -> bool:
            groups = [self.describe(side) for side in self.sides]
            with_targets = groups[0].group_state != "Assigning"
            views[:] = [view(group, with_targets=with_targets) for group in groups]
            return views[0] == views[1]

        wait_until(is_alike, lambda: f"both are alike: {views} after {self.answers[-8:]}")

    def delete_topics(self) -> None:
        """Thousands of walks would leave more partitions than Kafka can hold."""
        topics = [m.DeleteTopicState(name=topic, topic_id=bytes(16)) for topic in self.counts]
        request = m.DeleteTopicsRequest(topics=topics, timeout_ms=60_000)
        for side in self.sides:
            self.call(side, request, 6, m.DeleteTopicsResponse)

    def close(self) -> None:
        for client in self.clients.values():
            client.close()


def walk(pair: Pair, seed: int) -> None:
    walked = Walk(pair, seed)
    try:
        for _ in range(STEPS):
            walked.step()
        walked.delete_topics()
    finally:
        walked.close()


BATCHES: Final = [
    pytest.param(first, marks=() if first == 0 else pytest.mark.long)
    for first in range(0, SEEDS, BATCH)
]


@pytest.mark.parametrize("first", BATCHES)
def test_both_brokers_answer_each_step_alike(
    pair: Pair, subtests: pytest.Subtests, first: int, *, long_form: bool
) -> None:
    """Walks are independent of each other: each has a group, topics and connections of its own."""
    with ThreadPoolExecutor(AT_ONCE) as threads:
        seeds = range(first, first + (BATCH if long_form else BATCH_SHORT))
        walks = {seed: threads.submit(walk, pair, seed) for seed in seeds}
    for seed, walked in walks.items():
        with subtests.test(seed=seed):
            walked.result()
