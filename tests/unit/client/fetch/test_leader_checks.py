"""Positions under a new leader, as the fetcher has them checked; its brokers are scripted."""

import asyncio

import pytest

from kohort.client.config import ConsumerConfig
from kohort.client.core.errors import AuthorizationError
from kohort.client.net.versions import ApiVersionTable
from kohort.protocol.errors import ErrorCode
from tests.support.virtual_time import virtual
from tests.unit.client.scripted_brokers import FETCH, LIST_OFFSETS, Scene, partition

A = partition(0)


async def scene_after_a_change(config: ConsumerConfig | None = None, *, end: int = 10) -> Scene:
    """Ten records of epoch 5 were read from one broker; another leads now, in epoch 6."""
    scene = Scene(1) if config is None else Scene(1, config=config)
    for broker in (scene.one, scene.two):
        broker.append(0, *(b"%d" % number for number in range(10)))
    await scene.read(10)
    scene.positions.seek(A, 10, 5)
    scene.fetcher.wake()
    scene.two.epoch_ends[0] = (5, end)
    scene.two.append(0, b"10", b"11")
    scene.cluster.lead(2, epoch=6)
    scene.fetcher.wake()
    return scene


@virtual
async def test_nothing_is_fetched_from_a_new_leader_before_it_was_asked() -> None:
    scene = await scene_after_a_change(end=8)
    assert await scene.values(4) == [b"8", b"9", b"10", b"11"]
    offsets = [request.topics[0].partitions[0].fetch_offset for request in scene.two.requests]
    assert offsets[0] == 8


@virtual
async def test_what_newer_metadata_or_time_may_mend_is_asked_again() -> None:
    scene = await scene_after_a_change()
    codes = [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    scene.two.epoch_faults.extend(codes)
    assert await scene.values(2) == [b"10", b"11"]
    assert len(scene.two.asked_epochs) == 3
    assert scene.metadata_wanted >= 2


@virtual
async def test_no_error_is_raised_for_a_partition_that_is_revoked_while_its_leader_is_asked() -> (
    None
):
    scene = await scene_after_a_change()
    scene.two.epoch_faults.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    scene.positions.set_assigned([])
    scene.fetcher.assignment_changed()
    await asyncio.sleep(1)
    assert len(scene.two.asked_epochs) == 1
    assert not await scene.fetcher.wait(1)
    assert not scene.fetcher.take(1)


@virtual
async def test_not_being_allowed_to_ask_is_told() -> None:
    scene = await scene_after_a_change()
    scene.two.epoch_faults.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(AuthorizationError):
        await scene.read(1)
    assert await scene.values(2) == [b"10", b"11"]


@pytest.mark.parametrize("epochs", [{}, {23: (2, 2)}])
@virtual
async def test_a_broker_too_old_to_be_asked_is_read_from_all_the_same(
    epochs: dict[int, tuple[int, int]],
) -> None:
    scene = await scene_after_a_change()
    scene.two.versions = ApiVersionTable({FETCH: (4, 18), LIST_OFFSETS: (1, 11), **epochs})
    assert await scene.values(2) == [b"10", b"11"]
    assert scene.two.asked_epochs == []
