"""Positions and assignments that change while a fetch is under way."""

import asyncio
from dataclasses import replace

import pytest

from kohort.client.core.errors import OffsetOutOfRangeError
from kohort.protocol.errors import ErrorCode
from tests.support.virtual_time import virtual
from tests.unit.client.scripted_brokers import EARLIEST, Scene, partition

A, B = partition(0), partition(1)


@virtual
async def test_an_answer_to_where_the_position_was_before_a_seek_is_ignored() -> None:
    scene = Scene(1)
    await asyncio.sleep(0.1)
    scene.positions.seek(A, 1)
    scene.fetcher.wake()
    # The request that is parked asks for offset 0.
    scene.one.append(0, b"a", b"b")
    assert await scene.values(1) == [b"b"]


@virtual
async def test_out_of_range_waits_until_what_was_fetched_before_it_is_taken() -> None:
    scene = Scene(1, config=replace(EARLIEST, auto_offset_reset="none"))
    scene.one.append(0, b"a", b"b")
    await asyncio.sleep(0.1)
    scene.one.faults[0].extend([ErrorCode.OFFSET_OUT_OF_RANGE] * 20)
    scene.one.append(0)
    await asyncio.sleep(2)
    assert await scene.values(2) == [b"a", b"b"]
    with pytest.raises(OffsetOutOfRangeError, match="t-0: offset 2 is outside the log") as caught:
        await scene.read(1)
    assert (caught.value.partition, caught.value.offset) == (A, 2)


@virtual
async def test_partitions_that_are_revoked_while_they_are_fetched_are_not_returned() -> None:
    scene = Scene(1, 1)
    await asyncio.sleep(0.1)
    scene.positions.set_assigned([B])
    scene.fetcher.assignment_changed()
    scene.one.append(0, b"a")
    scene.one.append(1, b"b")
    assert await scene.values(1) == [b"b"]
    await asyncio.sleep(5)
    assert not scene.fetcher.take(10)


@virtual
async def test_a_held_partition_is_neither_fetched_nor_returned_and_keeps_what_it_has() -> None:
    scene = Scene(1, 1)
    scene.one.append(0, b"a")
    await asyncio.sleep(0.1)
    scene.positions.hold([A])
    scene.fetcher.wake()
    await asyncio.sleep(1)
    asked = len(scene.one.requests)
    await asyncio.sleep(5)
    late = [one for request in scene.one.requests[asked:] for one in request.topics]
    assert {one.partition for topic in late for one in topic.partitions} == {1}
    assert not scene.fetcher.take(10)
    scene.positions.set_assigned([A, B])
    scene.fetcher.assignment_changed()
    assert [len(some) for some in scene.fetcher.take(10).values()] == [1]


@virtual
async def test_without_a_policy_a_topic_with_another_id_is_an_error() -> None:
    scene = Scene(1, config=replace(EARLIEST, auto_offset_reset="none"))
    scene.one.append(0, b"a", b"b")
    await scene.read(2)
    scene.cluster.lead(1, topic_id=b"j" * 16)
    scene.fetcher.wake()
    with pytest.raises(OffsetOutOfRangeError, match="t was deleted and recreated") as caught:
        scene.fetcher.take(1)
    assert (caught.value.partition, caught.value.offset) == (A, 2)
