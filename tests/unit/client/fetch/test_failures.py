"""What a fetcher tells about partitions that are not read."""

import asyncio

from kohort.client.clock import loop_ms
from kohort.client.core.errors import AuthorizationError, DeserialisationError
from kohort.client.core.fetch.deserialisers import Deserialisers
from kohort.protocol.errors import ErrorCode
from tests.support.virtual_time import virtual
from tests.unit.client.scripted_brokers import Scene, partition

A, B = partition(0), partition(1)


async def errors_of(scene: Scene, kind: type[Exception], count: int) -> None:
    while count:
        try:
            await scene.read(1)
        except kind:
            count -= 1


@virtual
async def test_a_record_that_no_one_can_use_is_told_of_until_somebody_seeks() -> None:
    scene = Scene(1, 1, deserialisers=Deserialisers(value=_not_bad))
    scene.one.append(0, b"bad", b"good")
    scene.one.append(1, b"fine")
    assert await scene.values(1) == [b"fine"]
    await errors_of(scene, DeserialisationError, 3)
    found = scene.fetcher.state.failures.unread(loop_ms())
    assert list(found) == [A]
    assert (found[A].times, found[A].is_refused) == (3, True)
    assert found[A].seconds > 0
    assert "offset 0 cannot be deserialised" in found[A].error
    scene.positions.seek(A, 1)
    scene.fetcher.wake()
    assert scene.fetcher.state.failures.unread(loop_ms()) == {}
    assert await scene.values(1) == [b"good"]


@virtual
async def test_what_was_refused_is_forgotten_when_it_is_allowed() -> None:
    scene = Scene(1)
    scene.one.faults[0].extend([ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2)
    await errors_of(scene, AuthorizationError, 2)
    assert scene.fetcher.state.failures.unread(loop_ms())[A].times == 2
    # Nothing new is there, but now it says so.
    scene.one.append(0, b"a")
    await scene.fetcher.wait(60)
    assert scene.fetcher.state.failures.unread(loop_ms()) == {}


@virtual
async def test_partitions_without_an_answer_are_told_of_for_as_long_as_there_is_none() -> None:
    scene = Scene(1, 2, -1)
    scene.one.append(0, b"a")
    scene.two.is_silent = True
    assert await scene.values(1) == [b"a"]
    state = scene.fetcher.state
    answered = state.failures.answered_ms(A)
    assert answered is not None
    assert state.failures.answered_ms(B) is None
    await asyncio.sleep(40)
    silent = state.unanswered(loop_ms())
    assert 40 <= silent[B] <= 41
    assert 40 <= silent[partition(2)] <= 41
    scene.positions.pause([partition(2)])
    assert partition(2) not in state.unanswered(loop_ms())
    scene.two.is_silent = False
    scene.two.append(1, b"b")
    scene.one.append(0, b"c")
    assert sorted(await scene.values(2)) == [b"b", b"c"]
    assert state.unanswered(loop_ms()) == {}
    assert loop_ms() - (state.failures.answered_ms(B) or 0) < 1_000


@virtual
async def test_partitions_that_wait_for_a_position_are_told_of_until_they_have_one() -> None:
    scene = Scene(1)
    state = scene.fetcher.state
    scene.positions.forget(A)
    state.failures.placeless([A], loop_ms())
    await asyncio.sleep(7)
    state.failures.placeless([A], loop_ms())
    assert state.unanswered(loop_ms()) == {A: 7.0}
    scene.positions.seek(A, 0)
    assert state.unanswered(loop_ms()) == {}


@virtual
async def test_what_waits_to_be_taken_or_is_put_aside_is_not_asked_for() -> None:
    scene = Scene(1, 2)
    scene.one.append(0, b"a")
    await scene.fetcher.wait(60)
    scene.one.is_down = scene.two.is_down = True
    await asyncio.sleep(5)
    state = scene.fetcher.state
    assert set(state.unanswered(loop_ms())) == {B}
    only = frozenset({A})
    scene.positions.begin_reading(only)
    assert state.unanswered(loop_ms()) == {}
    scene.positions.end_reading(only)
    assert await scene.values(1) == [b"a"]
    assert scene.fetcher.take(1) == {}
    await asyncio.sleep(1)
    assert set(state.unanswered(loop_ms())) == {A, B}


@virtual
async def test_a_new_leader_that_cannot_be_asked_what_it_has_is_told_of() -> None:
    scene = Scene(1)
    scene.one.append(0, b"a")
    assert await scene.values(1) == [b"a"]
    scene.positions.seek(A, 1, 5)
    scene.two.is_down = True
    scene.cluster.lead(2, epoch=6)
    scene.fetcher.wake()
    await asyncio.sleep(5)
    assert scene.positions.state(A).is_doubted
    assert 4 <= scene.fetcher.state.unanswered(loop_ms())[A] <= 5


@virtual
async def test_nothing_is_told_of_partitions_that_are_gone() -> None:
    scene = Scene(2, -1)
    scene.two.faults[0].extend([ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 100)
    await errors_of(scene, AuthorizationError, 2)
    state = scene.fetcher.state
    assert (set(state.failures.unread(loop_ms())), set(state.unanswered(loop_ms()))) == (
        {A},
        {B},
    )
    scene.positions.set_assigned([])
    scene.fetcher.assignment_changed()
    scene.positions.set_assigned([A, B])
    scene.fetcher.assignment_changed()
    assert (state.failures.unread(loop_ms()), state.unanswered(loop_ms())) == ({}, {})


def _not_bad(data: bytes) -> bytes:
    if data == b"bad":
        raise ValueError("no good")
    return data
