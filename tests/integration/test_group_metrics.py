"""Groups that go through everything, and what the metrics then say: exactly that."""

import asyncio
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric

from kohort.broker.app import Broker
from kohort.groups.history.model import RebalanceRecord
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason
from kohort.protocol.messages import consumer_group_heartbeat as beating
from kohort.testing.kit.groups import Groups, KitGroup, history_records
from tests.integration.test_metrics import (
    running,
    scrape,
    value,
)
from tests.support import messages as m
from tests.support.network.wire import RawClient
from tests.support.waiting import until

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
PARTITIONS = 6


def share(partitions: list[int]) -> bytes:
    """An assignment as the consumer protocol writes it: partitions of topic "t"."""
    numbers = b"".join(struct.pack(">i", number) for number in partitions)
    return b"\0\0\0\0\0\1\0\1t" + struct.pack(">i", len(partitions)) + numbers + b"\xff\xff\xff\xff"


class Member:
    """One consumer, on a connection of its own; does only what it is told."""

    def __init__(self, broker: Broker, group: str = "g", instance: str | None = None) -> None:
        self.client = RawClient(broker.endpoint.port)
        self.group = group
        self.instance = instance
        self.member_id = ""

    def close(self) -> None:
        self.client.close()

    async def call(self, request: object, version: int, response: type[Any]) -> Any:  # noqa: ANN401
        return await asyncio.to_thread(self.client.call, request, version, response)

    async def join(self, reason: JoinReason = JoinReason.UNKNOWN) -> m.JoinGroupResponse:
        request = m.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocols=[m.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
            join_reason=reason,
        )
        answer: m.JoinGroupResponse = await self.call(request, 9, m.JoinGroupResponse)
        self.member_id = answer.member_id
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return await self.join(reason)
        assert answer.error_code == ErrorCode.NONE
        return answer

    async def sync(self, joined: m.JoinGroupResponse) -> None:
        ids = [one.member_id for one in joined.members]
        request = m.SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                m.SyncGroupRequestAssignment(
                    member_id=one, assignment=share(list(range(index, PARTITIONS, len(ids))))
                )
                for index, one in enumerate(ids)
            ],
        )
        answer = await self.call(request, 5, m.SyncGroupResponse)
        assert answer.error_code == ErrorCode.NONE

    async def leave(self) -> None:
        """By the instance id alone if there is one, as an administrator removes it."""
        one = m.MemberIdentity(
            member_id="" if self.instance else self.member_id, group_instance_id=self.instance
        )
        request = m.LeaveGroupRequest(group_id=self.group, members=[one])
        answer = await self.call(request, 5, m.LeaveGroupResponse)
        assert answer.members[0].error_code == ErrorCode.NONE


def state(broker: Broker, group: str = "g") -> str | None:
    found = broker.services.groups.host.group(group)
    return None if found is None else found.describe().state


async def rebalance(
    broker: Broker, *members: Member, reason: JoinReason = JoinReason.UNKNOWN
) -> None:
    """The first one begins, unless a rebalance is under way; the others follow, and all sync."""
    first = asyncio.create_task(members[0].join(reason))
    await until(lambda: first.done() or state(broker, members[0].group) == "PreparingRebalance")
    joined = [*await asyncio.gather(first, *(member.join() for member in members[1:]))]
    # A lone joiner's answer says nothing of the group being stable; its sync does.
    await asyncio.gather(
        *(member.sync(answer) for member, answer in zip(members, joined, strict=True))
    )
    assert state(broker, members[0].group) == "Stable"


async def live_through_everything(broker: Broker) -> None:
    """Each cause a known number of times; the group is empty at the end."""
    with (
        closing(Member(broker)) as leader,
        closing(Member(broker)) as follower,
        closing(Member(broker, instance="s")) as static,
        closing(Member(broker)) as mortal,
    ):
        await rebalance(broker, leader)
        await rebalance(broker, follower, leader)
        await rebalance(broker, static, leader, follower)
        static.member_id = ""
        await static.join(JoinReason.RESTART)
        await leader.join(JoinReason.RESTART)
        await rebalance(broker, leader, follower, static)
        await rebalance(broker, follower, leader, static, reason=JoinReason.ENFORCED)
        await follower.leave()
        await rebalance(broker, leader, static)
        await rebalance(broker, mortal, leader, static)
        group = KitGroup("g", lambda: Groups(broker))
        await group.expire(member_id=mortal.member_id)
        await until(lambda: state(broker) == "PreparingRebalance")
        await rebalance(broker, leader, static)
        await leader.leave()
        await static.leave()
        assert state(broker) == "Empty"


STARTED = {
    "member_added": 3,
    "static_added": 1,
    "leader_rejoined": 1,
    "forced_by_reason": 1,
    "member_left": 2,
    "session_expired": 1,
}
STABLE_COUNT = 8
AVOIDED = {("static_replaced", "restart"): 1, ("leader_rejoined", "restart"): 1}
REMOVED = {"left": 2, "removed_by_admin": 1, "session_expired": 1}


def by_label(families: dict[str, Metric], name: str, *labels: str) -> dict[Any, float]:
    """Values of all samples of a name by one label, or by several."""
    found: dict[Any, float] = {}
    for family in families.values():
        for sample in family.samples:
            if sample.name == name:
                key = tuple(sample.labels[label] for label in labels)
                found[key if len(labels) > 1 else key[0]] = sample.value
    return found


def of_group(families: dict[str, Metric], name: str, group: str, label: str) -> dict[str, float]:
    found = by_label(families, name, "consumergroup", label)
    return {key[1]: value for key, value in found.items() if key[0] == group}


async def test_each_cause_is_counted_as_often_as_it_was(tmp_path: Path) -> None:
    async with running(tmp_path) as (broker, port):
        await live_through_everything(broker)
        rebalances = sum(STARTED.values())
        await until(lambda: broker.history.totals("g") == (rebalances, 2))
        records = history_records(broker.history, "g")
        found = await scrape(port)
    assert by_label(found, "kohort_rebalances_started_total", "cause") == STARTED
    name = "kafka_consumergroup_rebalances_total"
    assert of_group(found, name, "g", "cause") == STARTED
    assert of_group(found, name, "g", "protocol").keys() == {"classic"}
    avoided = by_label(found, "kohort_rebalances_avoided_total", "cause", "reason")
    assert avoided == AVOIDED
    avoided_name = "kohort_consumergroup_rebalances_avoided_total"
    assert of_group(found, avoided_name, "g", "reason") == {"restart": 2}
    assert by_label(found, "kohort_group_members_removed_total", "cause") == REMOVED
    removed_name = "kohort_consumergroup_members_removed_total"
    assert of_group(found, removed_name, "g", "cause") == REMOVED
    phases = by_label(found, "kohort_rebalance_phase_seconds_count", "phase")
    of_consumers = dict.fromkeys(("assign", "reconcile", "revoke", "notice"), 0)
    classic = {"join": rebalances, "sync": STABLE_COUNT, "whole": rebalances}
    assert phases == classic | of_consumers
    meters = "kafka_server_group_coordinator_metrics"
    assert value(found, f"{meters}_group_completed_rebalance_count") == STABLE_COUNT
    closed = [record for record in records if isinstance(record, RebalanceRecord)]
    stopped_s = sum(record.stopped.total_ms for record in closed) / 1000
    moved = sum(record.partitions.moved for record in closed if record.partitions.known)
    assert stopped_s > 0
    assert moved > 0
    stopped = value(found, "kohort_consumergroup_stopped_seconds_total", consumergroup="g")
    assert stopped == value(found, "kohort_rebalance_stopped_seconds_total")
    assert round(stopped, 3) == round(stopped_s, 3)
    assert value(found, "kohort_consumergroup_partitions_moved_total", consumergroup="g") == moved
    assert value(found, "kohort_rebalance_partitions_moved_total") == moved
    assert value(found, "kohort_rebalance_history_lost_total") == 0
    assert value(found, "kohort_rebalances_running") == 0


class Consumer:
    """A member of the consumer group "g" that reads topic "t"."""

    def __init__(self, client: RawClient, member_id: str) -> None:
        self.client, self.member_id = client, member_id
        self.epoch = 0
        self.owned: list[beating.TopicPartitions] = []

    async def beat(self, epoch: int | None = None) -> None:
        """Send a heartbeat, and take over what it is answered."""
        request = beating.ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.member_id,
            member_epoch=self.epoch if epoch is None else epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["t"],
            topic_partitions=self.owned,
        )
        kind = beating.ConsumerGroupHeartbeatResponse
        answer = await asyncio.to_thread(self.client.call, request, 1, kind)
        assert answer.error_code == ErrorCode.NONE
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment.topic_partitions


async def test_a_consumer_group_is_counted_by_epochs_and_phases(tmp_path: Path) -> None:
    settings = {"group_consumer_assignment_interval_ms": "0"}
    async with running(tmp_path, **settings) as (broker, port):
        with RawClient(broker.endpoint.port) as client:
            topic = m.CreatableTopic(
                name="t",
                num_partitions=PARTITIONS,
                replication_factor=1,
                assignments=[],
                configs=[],
            )
            request = m.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
            await asyncio.to_thread(client.call, request, 5, m.CreateTopicsResponse)
            first, second = Consumer(client, "a"), Consumer(client, "b")
            await first.beat()
            await second.beat()
            unaware = await scrape(port)
            await first.beat()
            revoking = await scrape(port)
            await first.beat()
            await second.beat()
            stable = await scrape(port)
            await second.beat(-1)
            await first.beat()
            await first.beat(-1)
            await until(lambda: broker.history.totals("g") == (4, 0))
            found = await scrape(port)

    name = "kohort_consumergroup_members_reconciling"
    waits = dict.fromkeys(("stable", "unrevoked_partitions", "unreleased_partitions"), 0)
    assert of_group(unaware, name, "g", "state") == waits | {
        "stable": 1,
        "unreleased_partitions": 1,
    }
    assert of_group(revoking, name, "g", "state") == waits | {
        "unrevoked_partitions": 1,
        "unreleased_partitions": 1,
    }
    assert of_group(stable, name, "g", "state") == waits
    state_name = "kohort_consumergroup_state"
    assert of_group(unaware, state_name, "g", "state") == {"Reconciling": 1}
    assert value(stable, "kohort_consumergroup_epoch", consumergroup="g") == 3
    assert value(stable, "kohort_consumergroup_assignment_epoch", consumergroup="g") == 3
    assert value(found, "kohort_consumergroup_epoch", consumergroup="g") == 5
    causes = {"member_added": 2, "member_left": 2}
    assert of_group(found, "kohort_consumergroup_epoch_bumps_total", "g", "cause") == causes
    assert of_group(found, "kafka_consumergroup_rebalances_total", "g", "cause") == causes
    phases = by_label(found, "kohort_rebalance_phase_seconds_count", "phase")
    of_consumers = {"assign": 3, "reconcile": 3, "revoke": 1, "notice": 2}
    assert phases == {"join": 0, "sync": 0, "whole": 4} | of_consumers
    meters = "kafka_server_group_coordinator_metrics"
    assert value(found, f"{meters}_group_count", protocol="consumer") == 1
    states = dict.fromkeys(("empty", "assigning", "reconciling", "stable", "dead"), 0)
    assert by_label(unaware, f"{meters}_consumer_group_count", "state") == states | {
        "reconciling": 1
    }
    assert by_label(found, f"{meters}_consumer_group_count", "state") == states | {"empty": 1}
    assert value(found, f"{meters}_consumer_group_rebalance_count") == 4
    assert value(found, f"{meters}_group_completed_rebalance_count") == 0
    assert value(found, "kafka_coordinator_group_groupmetadatamanager_numgroups") == 0
