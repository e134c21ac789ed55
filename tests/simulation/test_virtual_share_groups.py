"""Share groups on virtual time: a lock that times out costs a test no real time."""

import asyncio
import json
import time

import pytest

from kohort.broker.http.messages import HttpRequest
from kohort.protocol.errors import ErrorCode
from kohort.testing import VirtualKafka, kafka_settings
from tests.support.share.running_share import Acquired
from tests.support.share.share_member import share_member

ACCEPT = 1


async def test_a_lock_times_out_in_virtual_time(virtual_kafka: VirtualKafka) -> None:
    await virtual_kafka.create_topic("jobs", partitions=1)
    group = virtual_kafka.group("workers")
    began_s = time.perf_counter()
    servers = virtual_kafka.bootstrap_servers
    async with (
        share_member(servers, "workers", "jobs") as slow,
        share_member(servers, "workers", "jobs") as quick,
    ):
        await virtual_kafka.produce("jobs", b"job")
        await group.wait(state="Stable", members=2, lag=1)
        began_ms = virtual_kafka.now_ms
        assert await slow.fetch() == [Acquired(0, 0, 1)]
        assert await quick.fetch(max_wait_ms=60_000) == [Acquired(0, 0, 2)]
        assert 30_000 <= virtual_kafka.now_ms - began_ms < 31_000
        assert await slow.acknowledge(0, 0, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
        assert await quick.acknowledge(0, 0, ACCEPT) is ErrorCode.NONE
        await group.wait(lag=0)
    assert time.perf_counter() - began_s < 10


async def test_no_background_task_fails_within_three_hours(virtual_kafka: VirtualKafka) -> None:
    await virtual_kafka.create_topic("jobs", partitions=1)
    async with share_member(virtual_kafka.bootstrap_servers, "workers", "jobs") as member:
        await virtual_kafka.produce("jobs", b"job")
        assert await member.fetch() == [Acquired(0, 0, 1)]
    await asyncio.sleep(3 * 3600)
    assert not any(virtual_kafka._kit.groups.broker.background_tasks.failure_counts.values())


async def test_a_member_without_heartbeats_still_acknowledges(virtual_kafka: VirtualKafka) -> None:
    await virtual_kafka.create_topic("jobs", partitions=1)
    group = virtual_kafka.group("workers")
    async with share_member(virtual_kafka.bootstrap_servers, "workers", "jobs") as member:
        await virtual_kafka.produce("jobs", b"job")
        assert await member.fetch() == [Acquired(0, 0, 1)]
        with pytest.raises(ValueError, match="is a share group"):
            await group.enforce()
        assert await group.expire(member_id=member.member_id) == [member.member_id]
        await group.wait(state="Empty", members=0)
        assert await member.acknowledge(0, 0, ACCEPT) is ErrorCode.NONE
        await group.wait(lag=0)


async def test_the_kit_says_why_a_share_group_is_behind(virtual_kafka: VirtualKafka) -> None:
    await virtual_kafka.create_topic("jobs", partitions=1)
    async with share_member(virtual_kafka.bootstrap_servers, "workers", "jobs") as member:
        for _ in range(3):
            await virtual_kafka.produce("jobs", b"job")
        assert await member.fetch() == [Acquired(0, 2, 1)]
        await asyncio.sleep(10)
        assert await member.acknowledge(1, 2, ACCEPT) is ErrorCode.NONE
        text = "\n".join(await virtual_kafka.group("workers").why())
        assert "Record 0 has kept the start offset of jobs-0 from advancing for 10 s" in text
        assert f"member {member.member_id} acquired it 10 s ago, at delivery 1 of 5" in text
        assert "the lock expires in 20 s" in text


@kafka_settings({"group.share.partition.max.record.locks": 100})
async def test_a_member_that_never_acknowledges_is_warned_about(
    virtual_kafka: VirtualKafka,
) -> None:
    await virtual_kafka.create_topic("jobs", partitions=1)
    async with share_member(virtual_kafka.bootstrap_servers, "workers", "jobs") as member:
        for _ in range(95):
            await virtual_kafka.produce("jobs", b"job")
        assert await member.fetch() == [Acquired(0, 94, 1)]
        await asyncio.sleep(29)
        await member.heartbeat()
        assert await warnings_of(virtual_kafka) == [
            "jobs-0 has 95 records in flight of at most 100."
        ]
        await asyncio.sleep(31)
        warnings = await warnings_of(virtual_kafka)
        assert "Record 0 has kept the start offset of jobs-0 from advancing for 60 s." in warnings
        silent = "1 member had lock timeouts and no acknowledgements"
        assert any(silent in text for text in warnings)


async def warnings_of(kafka: VirtualKafka) -> list[str]:
    pages = kafka._kit.groups.pages
    response = await pages.share(HttpRequest("GET", "", "", "", ("workers",)))
    return [warning["text"] for warning in json.loads(b"".join(response.body))["warnings"]]
