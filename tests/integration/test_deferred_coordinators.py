"""The coordinators are created by the first request that needs them, or at the start if there is
stored state.
"""

import asyncio
from pathlib import Path

from kohort.broker.app import Broker
from kohort.broker.config import load
from kohort.protocol.errors import ErrorCode
from tests.support import messages as m
from tests.support.network.requests import create_topics
from tests.support.network.wire import RawClient


def broker_in(directory: Path) -> Broker:
    overrides = (
        "listeners=PLAINTEXT://127.0.0.1:0",
        f"log.dirs={directory}",
        "kohort.metrics.port=-1",
        "kohort.console.port=-1",
    )
    return Broker(load(overrides=overrides))


def has_coordinators(broker: Broker) -> bool:
    return broker.coordinators.created is not None


def commit_offset(port: int) -> None:
    """Create a topic, and commit an offset for a group without members."""
    commit = m.OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[
            m.OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    m.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=42, committed_metadata=""
                    )
                ],
            )
        ],
    )
    with RawClient(port) as client:
        create_topics(client, "t")
        response = client.call(commit, 8, m.OffsetCommitResponse)
    assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


def list_groups(port: int) -> list[str]:
    with RawClient(port) as client:
        response = client.call(m.ListGroupsRequest(), 3, m.ListGroupsResponse)
    return [group.group_id for group in response.groups]


def ask_metadata(port: int) -> None:
    with RawClient(port) as client:
        client.call(m.ApiVersionsRequest(), 0, m.ApiVersionsResponse)
        client.call(m.MetadataRequest(topics=None), 1, m.MetadataResponse)


async def test_the_first_group_creates_the_coordinators(tmp_path: Path) -> None:
    async with broker_in(tmp_path).running() as broker:
        await asyncio.to_thread(ask_metadata, broker.endpoint.port)
        assert not has_coordinators(broker)
        await asyncio.to_thread(commit_offset, broker.endpoint.port)
        assert has_coordinators(broker)
        committed = broker.services.groups.committed("g", "t", 0)
        assert committed is not None
        assert committed.offset == 42


async def test_stored_groups_are_loaded_at_the_start(tmp_path: Path) -> None:
    async with broker_in(tmp_path).running() as broker:
        await asyncio.to_thread(commit_offset, broker.endpoint.port)
    async with broker_in(tmp_path).running() as broker:
        assert has_coordinators(broker)
        assert await asyncio.to_thread(list_groups, broker.endpoint.port) == ["g"]


async def test_concurrent_first_requests_find_the_same_groups(tmp_path: Path) -> None:
    async with broker_in(tmp_path).running() as broker:
        port = broker.endpoint.port
        first = asyncio.to_thread(commit_offset, port)
        others = [asyncio.to_thread(list_groups, port) for _ in range(5)]
        await asyncio.gather(first, *others)
        assert await asyncio.to_thread(list_groups, port) == ["g"]
