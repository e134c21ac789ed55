"""Followers that leaders name to consumers of their rack (KIP-392), on virtual time."""

import asyncio
from dataclasses import replace

import pytest

from kohort.client.config import ConsumerConfig
from kohort.client.core.errors import OffsetOutOfRangeError
from kohort.client.core.fetch.sources import LEADER_ALONE_MS
from kohort.client.net.versions import ApiVersionTable
from kohort.protocol.errors import ErrorCode
from tests.support.virtual_time import virtual
from tests.unit.client.scripted_brokers import EARLIEST, FETCH, Scene, partition

IN_RACK = replace(EARLIEST, client_rack="a", metadata_max_age_ms=60_000)
A, B = partition(0), partition(1)


def followed(*leaders: int, config: ConsumerConfig = IN_RACK) -> Scene:
    """Broker 1 leads, and names broker 2 to consumers of any rack; both have two records."""
    scene = Scene(*leaders, config=config)
    for broker in (scene.one, scene.two):
        for index in range(len(leaders)):
            broker.append(index, b"a", b"b")
    scene.one.named = dict.fromkeys(range(len(leaders)), 2)
    return scene


def append(scene: Scene, *values: bytes) -> None:
    for broker in (scene.one, scene.two):
        broker.append(0, *values)


@virtual
async def test_a_follower_is_read_from_where_the_leader_names_one() -> None:
    scene = followed(1)
    assert await scene.values(2) == [b"a", b"b"]
    assert [one.rack_id for one in scene.one.requests] == ["a"]
    for value in (b"c", b"d"):
        append(scene, value)
        assert await scene.values(1) == [value]
    assert len(scene.one.requests) == 1
    assert len(scene.two.requests) >= 3
    asked = [one.topics[0].partitions[0] for one in scene.two.requests]
    assert {one.current_leader_epoch for one in asked} == {5}


@virtual
async def test_only_what_was_named_is_read_from_the_follower() -> None:
    scene = followed(1, 1)
    del scene.one.named[1]
    assert sorted(await scene.values(4)) == [b"a", b"a", b"b", b"b"]
    asked = {
        one.partition
        for request in scene.two.requests
        for topic in request.topics
        for one in topic.partitions
    }
    assert asked == {0}


@virtual
async def test_no_one_is_told_of_a_rack_that_is_not_set_or_by_brokers_before_kafka_2_4() -> None:
    for config, versions in ((EARLIEST, (4, 18)), (IN_RACK, (4, 10))):
        scene = Scene(1, config=config)
        scene.one.versions = ApiVersionTable({FETCH: versions})
        scene.one.append(0, b"a")
        scene.one.named = {0: 2}
        assert await scene.values(1) == [b"a"]
        assert {one.rack_id for one in scene.one.requests} == {""}
        assert not scene.two.requests
        await scene.fetcher.close()


@virtual
async def test_the_leader_is_asked_again_when_metadata_is_old() -> None:
    scene = followed(1)
    assert await scene.values(2) == [b"a", b"b"]
    await asyncio.sleep(55)
    assert len(scene.one.requests) == 1
    await asyncio.sleep(10)
    assert len(scene.one.requests) == 2
    scene.one.named = {}
    await asyncio.sleep(65)
    scene.one.append(0, b"of the leader")
    assert await scene.values(1) == [b"of the leader"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ],
)
@virtual
async def test_the_leader_serves_what_a_follower_refuses_without_an_error(code: ErrorCode) -> None:
    scene = followed(1)
    assert await scene.values(2) == [b"a", b"b"]
    scene.two.faults[0].append(code)
    append(scene, b"c")
    began_s = asyncio.get_running_loop().time()
    assert await scene.values(1) == [b"c"]
    assert asyncio.get_running_loop().time() - began_s < 0.1, "without a backoff"
    assert scene.positions.position(A) == 3
    assert scene.metadata_wanted == (code is ErrorCode.NOT_LEADER_OR_FOLLOWER)
    # It names the follower again once it is told the rack again.
    assert scene.one.requests[1].rack_id == ""
    await asyncio.sleep(LEADER_ALONE_MS / 1000 + 5)
    asked = len(scene.one.requests)
    assert scene.one.requests[-1].rack_id == "a"
    await asyncio.sleep(5)
    assert len(scene.one.requests) == asked


@virtual
async def test_a_follower_that_lags_does_not_have_the_position_reset() -> None:
    scene = followed(1)
    assert await scene.values(2) == [b"a", b"b"]
    scene.two.logs[0] = [b"a"]
    append(scene)
    scene.one.append(0, b"c")
    assert await scene.values(1) == [b"c"]


@virtual
async def test_an_offset_that_the_leader_does_not_have_either_is_out_of_range() -> None:
    scene = followed(1, config=replace(IN_RACK, auto_offset_reset="none"))
    assert await scene.values(2) == [b"a", b"b"]
    for broker in (scene.one, scene.two):
        broker.logs[0] = [b"a"]
    append(scene)
    with pytest.raises(OffsetOutOfRangeError, match="t-0: offset 2"):
        await scene.read(1)


@pytest.mark.parametrize("is_silent", [False, True])
@virtual
async def test_a_follower_that_is_gone_costs_one_request_and_is_left_alone_for_a_while(
    is_silent: bool,
) -> None:
    scene = followed(1)
    assert await scene.values(2) == [b"a", b"b"]
    scene.two.is_silent, scene.two.is_down = is_silent, not is_silent
    for index in range(20):
        append(scene, b"%d" % index)
        assert await scene.values(1) == [b"%d" % index]
        await asyncio.sleep(1)
    assert scene.two.sent_count <= 4
    assert scene.metadata_wanted == 1


@virtual
async def test_a_follower_that_metadata_has_as_offline_is_not_asked() -> None:
    scene = followed(1)
    assert await scene.values(2) == [b"a", b"b"]
    scene.cluster.online = [1]
    scene.cluster.lead(1)
    scene.fetcher.wake()
    await asyncio.sleep(1)
    asked = scene.two.sent_count
    # The leader does not know yet; it is asked with growing pauses, and metadata too.
    await asyncio.sleep(10)
    assert scene.two.sent_count == asked
    assert 5 <= len(scene.one.requests) <= 25
    assert scene.metadata_wanted >= 5
    scene.one.named = {}
    append(scene, b"c")
    assert await scene.values(1) == [b"c"]


@virtual
async def test_a_new_leader_is_asked_whom_to_read_from() -> None:
    scene = followed(1)
    assert await scene.values(2) == [b"a", b"b"]
    scene.one.named, scene.two.named = {}, {0: 1}
    scene.cluster.lead(2, epoch=6)
    scene.fetcher.wake()
    append(scene, b"c")
    assert await scene.values(1) == [b"c"]
    assert scene.two.requests[-1].rack_id == "a"
    assert scene.one.requests[-1].topics[0].partitions[0].current_leader_epoch == 6


@virtual
async def test_a_leader_that_always_names_a_follower_is_not_asked_without_a_pause() -> None:
    scene = followed(1)
    assert await scene.values(2) == [b"a", b"b"]
    scene.two.faults[0].extend([ErrorCode.UNKNOWN_SERVER_ERROR] * 1_000)
    scene.one.names_always = True
    append(scene, b"c")
    await asyncio.sleep(10)
    assert len(scene.one.requests) + len(scene.two.requests) <= 60
    scene.two.faults[0].clear()
    assert await scene.values(1) == [b"c"]
