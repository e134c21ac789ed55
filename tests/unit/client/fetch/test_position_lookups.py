"""Positions that are looked up between polls: one lookup at a time, with a rest after a failure."""

import asyncio
from collections.abc import Collection, Mapping

import pytest

from kohort.client.core.errors import ConsumerError, OperationTimedOutError
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.fetch.position_lookups import PositionLookups
from tests.support.virtual_time import virtual
from tests.unit.client.scripted_brokers import Scene, partition

A, B = partition(0), partition(1)


class Lookup:
    """Asks the group what it has committed, which is 7; `fails` so often first."""

    def __init__(self, *, fails: int = 0) -> None:
        self.asked: list[set[TopicPartition]] = []
        self._fails = fails

    async def __call__(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        self.asked.append(set(partitions))
        if len(self.asked) <= self._fails:
            raise ConsumerError("not now")
        return dict.fromkeys(partitions, OffsetAndMetadata(7))


def lookups(scene: Scene, lookup: Lookup) -> PositionLookups:
    """Lookups of two partitions with records, the first of which was assigned a moment ago."""
    for index in (0, 1):
        scene.one.append(index, *[b"v"] * 9)
    scene.positions.forget(A)
    return PositionLookups(
        scene.fetcher, scene.positions, lookup, retry_backoff_ms=100, on_done=lambda: None
    )


@virtual
async def test_one_lookup_goes_on_at_a_time_and_none_while_nothing_changes() -> None:
    scene, lookup = Scene(1, 1), Lookup()
    found = lookups(scene, lookup)
    found.advance(1.0)
    found.advance(1.0)
    await asyncio.sleep(1)
    assert scene.positions.position(A) == 7
    for _ in range(3):
        found.advance(2.0)
        await asyncio.sleep(1)
    assert lookup.asked == [{A}]
    scene.positions.forget(B)
    found.advance(3.0)
    await asyncio.sleep(1)
    assert lookup.asked == [{A}, {B}]


@virtual
async def test_what_a_lookup_raised_the_next_poll_raises_and_it_is_tried_again_after_a_rest() -> (
    None
):
    scene, lookup = Scene(1, 1), Lookup(fails=1)
    found = lookups(scene, lookup)
    found.advance(1.0)
    await asyncio.sleep(1)
    with pytest.raises(ConsumerError, match="not now"):
        found.advance(2.0)
    assert found.rests_until_s == pytest.approx(2.1)
    found.advance(2.05)
    await asyncio.sleep(1)
    assert len(lookup.asked) == 1
    found.advance(2.2)
    await asyncio.sleep(1)
    assert scene.positions.position(A) == 7


@virtual
async def test_a_position_that_is_waited_for_is_found_or_missed_by_name() -> None:
    scene = Scene(1, 1)
    assert await lookups(scene, Lookup()).find(A, 10) == 7
    scene.positions.forget(A)

    async def silent(_: Collection[TopicPartition]) -> dict[TopicPartition, None]:
        await asyncio.sleep(1_000)
        return {}

    deaf = PositionLookups(
        scene.fetcher, scene.positions, silent, retry_backoff_ms=100, on_done=lambda: None
    )
    with pytest.raises(OperationTimedOutError, match=r"the position in t-0 .* within 10 s"):
        await deaf.find(A, 10)


@virtual
async def test_a_lookup_that_goes_on_is_given_up_at_the_end() -> None:
    scene, lookup = Scene(1, 1), Lookup()
    found = lookups(scene, lookup)
    found.advance(1.0)
    await found.close()
    await asyncio.sleep(1)
    assert scene.positions.position(A) is None
