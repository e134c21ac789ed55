"""What a rebalance does with partitions while the application's callbacks run."""

import asyncio
import time

import pytest

from kohort.client.core.group.actions import Apply, Prepare
from kohort.client.core.group.assignors import RebalanceProtocol
from kohort.client.core.group.subscription import Subscription
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition
from kohort.client.group.listener import Partitions, RebalanceListener
from kohort.client.group.offsets import GroupOffsets
from kohort.client.group.rebalance import Rebalance
from tests.support.virtual_time import virtual
from tests.unit.client.scripted_brokers import Scene as FetchScene
from tests.unit.client.scripted_brokers import partition
from tests.unit.client.scripted_coordinator import Scene as CoordinatorScene

A, B = partition(0), partition(1)
NOTHING: frozenset[TopicPartition] = frozenset()


class SlowListener(RebalanceListener):
    """Each callback takes ten seconds."""

    async def on_revoked(self, partitions: Partitions) -> None:
        await asyncio.sleep(10)

    async def on_assigned(self, partitions: Partitions) -> None:
        await asyncio.sleep(10)


class Scene:
    """A consumer that reads A and B, with a record of each at hand, outside of any rebalance."""

    def __init__(self, offsets: GroupOffsets | None = None) -> None:
        self.fetching = FetchScene(1, 1)
        self.subscription = Subscription()
        self.subscription.assigned = frozenset({A, B})
        self.rebalance = Rebalance(
            subscription=self.subscription,
            positions=self.fetching.positions,
            fetcher=self.fetching.fetcher,
            offsets=offsets,
            processed=lambda: {A: OffsetAndMetadata(1), B: OffsetAndMetadata(2)},
            commits_by_itself=offsets is not None,
            commit_timeout_s=10,
            on_progress=lambda: None,
        )
        self.rebalance.listener = SlowListener()

    def taken(self) -> set[TopicPartition]:
        return set(self.fetching.fetcher.take(10))


async def begun() -> Scene:
    scene = Scene()
    scene.fetching.one.append(0, b"a")
    scene.fetching.one.append(1, b"b")
    await asyncio.sleep(0.1)
    return scene


@virtual
async def test_nothing_is_returned_of_what_the_listener_is_told_it_loses() -> None:
    scene = await begun()
    action = Prepare(revoked=frozenset({A, B}), lost=NOTHING, kept=NOTHING)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await scene.rebalance.prepare(action, RebalanceProtocol.EAGER, 0)
    # The callback runs; another poll may have something else to do, as finding a coordinator.
    assert not scene.taken()
    await scene.rebalance.prepare(action, RebalanceProtocol.EAGER, 0)
    assert not scene.subscription.assigned


@virtual
async def test_nothing_is_returned_of_what_is_new_before_the_listener_has_been_told() -> None:
    scene = await begun()
    scene.rebalance.own(frozenset({A}))
    action = Apply(revoked=NOTHING, assigned=frozenset({A, B}), added=frozenset({B}))

    async def apply() -> None:
        await scene.rebalance.apply(action, 0, is_valid=lambda: True)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await apply()
    scene.fetching.positions.seek(B, 0)
    scene.fetching.fetcher.wake()
    await asyncio.sleep(2)
    assert scene.taken() == {A}
    await apply()
    await asyncio.sleep(2)
    assert scene.taken() == {B}


@pytest.mark.parametrize(
    ("next_action", "told"),
    [
        pytest.param(
            Prepare(revoked=None, lost=frozenset({A, B}), kept=NOTHING),
            [("revoked", {A}), ("lost", {B})],
            id="membership was lost",
        ),
        pytest.param(
            Prepare(revoked=frozenset({A, B}), lost=NOTHING, kept=NOTHING),
            [("revoked", {A}), ("revoked", {B})],
            id="everything is revoked",
        ),
        pytest.param(
            Prepare(revoked=None, lost=NOTHING, kept=frozenset({A, B})),
            [("revoked", {A})],
            id="another rebalance, before which everything would be kept",
        ),
    ],
)
@virtual
async def test_a_listener_is_told_once_of_what_it_loses_when_a_poll_was_cancelled_meanwhile(
    next_action: Prepare, told: list[tuple[str, set[TopicPartition]]]
) -> None:
    heard: list[tuple[str, set[TopicPartition]]] = []

    class Noting(SlowListener):
        async def on_revoked(self, partitions: Partitions) -> None:
            heard.append(("revoked", set(partitions)))
            await super().on_revoked(partitions)

        async def on_lost(self, partitions: Partitions) -> None:
            heard.append(("lost", set(partitions)))

    scene = await begun()
    scene.rebalance.listener = Noting()
    action = Apply(revoked=frozenset({A}), assigned=frozenset({B}), added=NOTHING)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await scene.rebalance.apply(action, 0, is_valid=lambda: True)

    await scene.rebalance.prepare(next_action, RebalanceProtocol.COOPERATIVE, 0)

    assert heard == told
    # Of what it was told to have lost nothing is read on.
    assert scene.subscription.assigned == next_action.kept - {A}


@pytest.mark.parametrize("mode", [RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE])
@virtual
async def test_processed_offsets_are_committed_before_the_listener_is_notified(
    mode: RebalanceProtocol,
) -> None:
    coordinator = CoordinatorScene()
    scene = Scene(coordinator.offsets)
    committed_before: list[set[int]] = []

    class Noting(RebalanceListener):
        def on_revoked(self, partitions: Partitions) -> None:
            committed_before.append(set(coordinator.broker.stored))

    scene.rebalance.listener = Noting()
    both = frozenset({A, B})
    deadline_s = time.monotonic() + 10
    if mode is RebalanceProtocol.EAGER:
        prepare = Prepare(revoked=both, lost=NOTHING, kept=NOTHING)
        assert await scene.rebalance.prepare(prepare, mode, deadline_s)
    else:
        apply = Apply(revoked=frozenset({A}), assigned=frozenset({B}), added=NOTHING)
        assert await scene.rebalance.apply(apply, deadline_s, is_valid=lambda: True)
    assert committed_before == [{0, 1}]
    await scene.fetching.fetcher.close()
