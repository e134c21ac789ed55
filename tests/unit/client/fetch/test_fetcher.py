"""Requests of a fetcher: to which brokers, when, and what it waits for."""

import asyncio
from dataclasses import replace

import pytest

from kohort.client.core.offsets import EARLIEST as EARLIEST_OFFSET
from kohort.client.core.offsets import LATEST, OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.fetch.fetcher import RECEIVING_ITERATIONS_MAX
from kohort.client.net.versions import ApiVersionTable
from kohort.protocol.errors import ErrorCode
from tests.support.virtual_time import virtual
from tests.unit.client.scripted_brokers import EARLIEST, FETCH, TOPIC_ID, Scene, partition

A, B = partition(0), partition(1)


@virtual
async def test_a_partition_is_read_from_its_new_leader_as_soon_as_it_is_known() -> None:
    scene = Scene(1)
    scene.one.faults[0].extend([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 50)
    scene.two.append(0, b"a")
    await asyncio.sleep(20)
    asked = len(scene.one.requests)
    scene.cluster.lead(2)
    scene.fetcher.wake()
    assert await scene.values(1) == [b"a"]
    assert len(scene.one.requests) <= asked + 1


@virtual
async def test_metadata_is_asked_for_while_a_partition_has_no_leader() -> None:
    scene = Scene(-1, 1)
    scene.one.append(1, b"b")
    assert await scene.values(1) == [b"b"]
    await asyncio.sleep(10)
    assert 8 <= scene.metadata_wanted <= 30
    scene.cluster.lead(1, 1)
    scene.one.append(0, b"a")
    scene.fetcher.wake()
    assert await scene.values(1) == [b"a"]


@virtual
async def test_a_partition_that_gets_a_leader_is_looked_up_at_once_and_not_after_a_backoff() -> (
    None
):
    scene = Scene(-1)
    scene.one.append(0, b"a")
    scene.positions.seek_to(A, EARLIEST_OFFSET)
    scene.fetcher.wake()
    await asyncio.sleep(20)
    assert scene.metadata_wanted >= 10
    scene.cluster.lead(1)
    began_s = asyncio.get_running_loop().time()
    scene.fetcher.wake()
    assert await scene.values(1) == [b"a"]
    assert asyncio.get_running_loop().time() == began_s


@virtual
async def test_brokers_are_asked_at_the_same_time() -> None:
    scene = Scene(1, 2, config=replace(EARLIEST, fetch_max_wait_ms=30_000))
    await asyncio.sleep(1)
    assert len(scene.one.requests) == len(scene.two.requests) == 1
    began_s = asyncio.get_running_loop().time()
    scene.two.append(1, b"b")
    assert await scene.values(1) == [b"b"]
    assert asyncio.get_running_loop().time() - began_s < 1


@pytest.mark.parametrize("version", range(4, 19))
@virtual
async def test_every_version_of_fetch_is_spoken(version: int) -> None:
    config = replace(EARLIEST, isolation_level="read_committed")
    scene = Scene(1, 1, config=config)
    scene.one.versions = ApiVersionTable({FETCH: (0, version)})
    scene.one.append(0, b"a")
    scene.one.append(1, b"b")
    assert sorted(await scene.values(2)) == [b"a", b"b"]
    assert set(scene.one.request_versions) == {version}
    first = scene.one.requests[0]
    assert [(topic.topic, topic.topic_id) for topic in first.topics] == [
        ("t", bytes(16)) if version < 13 else ("", TOPIC_ID)
    ]
    epoch = 5 if version >= 9 else -1
    assert [one.current_leader_epoch for one in first.topics[0].partitions] == [epoch] * 2
    assert first.isolation_level == 1
    # No fetch session (KIP-227), ever.
    assert {(one.session_id, one.session_epoch) for one in scene.one.requests} == {(0, -1)}


@virtual
async def test_waiting_ends_when_somebody_wakes_it_up() -> None:
    scene = Scene(1)
    waiting = asyncio.ensure_future(scene.fetcher.wait(1_000))
    await asyncio.sleep(1)
    assert not waiting.done()
    scene.fetcher.wake()
    assert await waiting is False
    assert await scene.fetcher.wait(2) is False


@virtual
async def test_waiting_for_positions_ends_with_its_time() -> None:
    scene = Scene(-1)
    scene.positions.seek_to(A, LATEST)
    scene.fetcher.wake()
    assert await scene.fetcher.wait_positions([A], 5) is False
    scene.cluster.lead(1)
    scene.one.append(0, b"a")
    assert await scene.fetcher.wait_positions([A], 5)
    assert scene.positions.position(A) == 1


@virtual
async def test_a_closed_fetcher_sends_no_request_and_can_be_closed_again() -> None:
    scene = Scene(1, 2)
    await asyncio.sleep(0.1)
    await scene.fetcher.close()
    asked = len(scene.one.requests)
    scene.one.append(0, b"a")
    scene.fetcher.wake()
    await asyncio.sleep(10)
    assert (len(scene.one.requests), scene.fetcher.take(10)) == (asked, {})


@virtual
async def test_what_was_committed_before_a_partition_went_and_came_back_is_not_its_position() -> (
    None
):
    scene = Scene(1)
    scene.positions.forget(A)

    async def committed(_: object) -> dict[TopicPartition, OffsetAndMetadata | None]:
        scene.positions.set_assigned([])
        scene.positions.set_assigned([A])
        return {A: OffsetAndMetadata(3)}

    await scene.fetcher.update_positions(committed)
    assert scene.positions.missing_position() == [A]


@virtual
async def test_the_next_request_is_sent_while_records_are_handed_out() -> None:
    scene = Scene(1, config=replace(EARLIEST, max_partition_fetch_bytes=1))
    scene.one.append(0, b"a")
    await scene.fetcher.wait(1)
    sent_count = scene.one.sent_count
    scene.cluster.is_connected = True
    # There is no await between these: the loop has no time at all.
    assert scene.fetcher.take(2)
    assert not scene.fetcher.take(1)
    assert scene.one.sent_count == sent_count + 1


@virtual
async def test_a_request_that_is_sent_during_a_seek_asks_nothing_from_before_it() -> None:
    scene = Scene(1, 1, config=replace(EARLIEST, max_partition_fetch_bytes=2_000))
    scene.cluster.is_connected = True
    # Enough of A, so that nothing is asked for; of B there could be more.
    scene.one.append(0, *(b"%d" % at for at in range(50)))
    scene.one.append(1, b"b", b"c")
    for _ in range(20):
        await asyncio.sleep(0)
    assert scene.fetcher.state.waiting_bytes
    asked_before = len(scene.one.requests)
    scene.positions.seek(A, 4)
    scene.positions.seek(B, 1)
    scene.fetcher.wake()
    for _ in range(20):
        await asyncio.sleep(0)
    (topic,) = scene.one.requests[asked_before].topics
    asked = {one.partition: one.fetch_offset for one in topic.partitions}
    assert asked == {0: 4, 1: 1}


@pytest.mark.parametrize(
    ("to_come", "rounds"), [(0, 1), (10, 6), (10_000, RECEIVING_ITERATIONS_MAX)]
)
@virtual
async def test_the_loop_receives_for_as_long_as_something_arrives_within_bounds(
    to_come: int, rounds: int
) -> None:
    scene = Scene(1)
    seen = 0

    async def count_rounds() -> None:
        nonlocal seen
        while True:
            await asyncio.sleep(0)
            seen += 1

    counting = asyncio.create_task(count_rounds())
    scene.cluster.to_come = to_come
    await scene.fetcher.let_loop_receive()
    assert abs(seen - rounds) <= 1
    counting.cancel()
    await scene.fetcher.close()
