"""Errors of partitions and silent brokers: what a fetcher tries again, tells, or drops."""

import asyncio

import pytest

from kohort.client.clock import loop_ms
from kohort.client.core.errors import AuthorizationError
from kohort.client.core.offsets import EARLIEST as EARLIEST_OFFSET
from kohort.client.fetch.offset_lookup import list_offsets
from kohort.client.net.versions import ApiVersionTable, UnsupportedVersionError
from kohort.protocol.errors import EncodeError, ErrorCode
from tests.support.virtual_time import virtual
from tests.unit.client.scripted_brokers import FETCH, Scene, partition

A, B = partition(0), partition(1)


@virtual
async def test_a_broker_that_is_down_keeps_no_other_from_being_read() -> None:
    scene = Scene(1, 2)
    scene.one.is_down = True
    scene.one.append(0, b"a")
    scene.two.append(1, b"b")
    assert await scene.values(1) == [b"b"]
    await asyncio.sleep(5)
    assert scene.metadata_wanted >= 4
    scene.one.is_down = False
    assert await scene.values(1) == [b"a"]


@virtual
async def test_a_broker_without_a_version_in_common_is_an_error_and_not_a_storm() -> None:
    scene = Scene(1)
    scene.one.versions = ApiVersionTable({FETCH: (0, 3)})
    for _ in range(2):
        with pytest.raises(UnsupportedVersionError, match="FetchRequest"):
            await scene.read(1)
    scene.one.versions = ApiVersionTable({FETCH: (4, 18)})
    scene.one.append(0, b"a")
    assert await scene.values(1) == [b"a"]


@virtual
async def test_a_broker_that_is_gone_before_it_could_be_asked_is_no_error() -> None:
    scene = Scene(1)
    address = scene.cluster._brokers.pop(1)
    await asyncio.sleep(0.01)
    assert scene.fetcher.take(1) == {}
    assert scene.metadata_wanted
    scene.cluster._brokers[1] = address
    scene.one.append(0, b"a")
    assert await scene.values(1) == [b"a"]


@virtual
async def test_an_error_about_a_partition_waits_while_others_are_read_alone() -> None:
    scene = Scene(1, 1)
    scene.one.append(0, b"a")
    scene.one.faults[1].append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    while not scene.fetcher.state.failures.are_due():
        await scene.fetcher.wait(1)
    scene.positions.begin_reading(frozenset({A}))
    scene.fetcher.wake()
    assert await scene.values(1) == [b"a"]
    assert scene.fetcher.take(1) == {}
    assert not await scene.fetcher.wait(1)
    scene.positions.end_reading(frozenset({A}))
    with pytest.raises(AuthorizationError):
        scene.fetcher.take(1)


@virtual
async def test_who_reads_some_partitions_gets_records_and_errors_of_those_alone() -> None:
    scene = Scene(1, 1)
    scene.one.append(0, b"a")
    scene.one.append(1, b"b")
    for one in (A, B):
        scene.positions.begin_reading(frozenset({one}))
    while not all(scene.fetcher.state.has_something({one}) for one in (A, B)):
        await scene.fetcher.wait(1, {A, B})
    assert [one.value for one in scene.fetcher.take(10, {B})[B]] == [b"b"]
    # A's record is no reason to return to who waits for B.
    began_s = asyncio.get_running_loop().time()
    assert not await scene.fetcher.wait(1, {B})
    assert asyncio.get_running_loop().time() - began_s == pytest.approx(1)
    scene.fetcher.state.report(B, AuthorizationError("B", ErrorCode.NONE), loop_ms())
    assert list(scene.fetcher.take(10, {A})) == [A]
    with pytest.raises(AuthorizationError):
        scene.fetcher.take(10, {B})


@virtual
async def test_a_request_that_cannot_be_made_leaves_its_broker_free_for_others() -> None:
    scene = Scene(1, 1)
    scene.cluster.is_connected = True
    scene.one.append(1, b"b")
    # Past the checks of `seek`, as any mistake of ours would be.
    scene.positions.state(A).position = 1 << 63
    scene.fetcher.wake()
    with pytest.raises(EncodeError):
        await scene.read(1)
    scene.positions.seek(A, 0)
    scene.fetcher.wake()
    scene.one.append(0, b"a")
    assert {*await scene.values(2)} == {b"a", b"b"}


@virtual
async def test_a_leader_that_is_silent_holds_up_the_look_ups_of_its_own_partitions_alone() -> None:
    scene = Scene(1, 2)
    scene.one.append(0, b"a")
    scene.two.append(1, b"b")
    scene.one.is_silent = True
    for one in (A, B):
        scene.positions.seek_to(one, EARLIEST_OFFSET)
    scene.fetcher.wake()
    began_s = asyncio.get_running_loop().time()
    assert await scene.fetcher.wait_positions([B], 10)
    assert asyncio.get_running_loop().time() - began_s < 0.1
    assert scene.positions.position(A) is None
    # Another leader is asked at once, though the silent one still owes its answer.
    scene.cluster.lead(2, 2)
    scene.fetcher.wake()
    assert await scene.fetcher.wait_positions([A], 10)
    assert asyncio.get_running_loop().time() - began_s < 0.2


@virtual
async def test_the_ends_of_logs_are_found_at_leaders_that_come_while_one_is_silent() -> None:
    scene = Scene(1, 2)
    scene.one.append(0, b"a")
    scene.two.append(0, b"a")
    scene.two.append(1, b"b", b"c")
    scene.one.is_silent = True
    scene.cluster.leaders_to_come = (2, 2)
    began_s = asyncio.get_running_loop().time()
    found = await list_offsets(
        scene.cluster, {A: -1, B: -1}, timeout_ms=60_000, request_timeout_ms=2_000
    )
    assert {one: at.offset for one, at in found.items() if at} == {A: 1, B: 2}
    assert asyncio.get_running_loop().time() - began_s < 3
