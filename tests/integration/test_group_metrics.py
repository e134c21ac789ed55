"""A consumer group that rebalances, and what the metrics then say: exactly that."""

import asyncio
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import consumer_group_heartbeat as beating
from tests.integration.test_metrics import (
    running,
    scrape,
    value,
)
from tests.support.network.requests import create_topics
from tests.support.network.wire import RawClient
from tests.support.waiting import until

PARTITIONS = 6


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
            await asyncio.to_thread(create_topics, client, "t", partitions=PARTITIONS)
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
