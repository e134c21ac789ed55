"""What is committed, by whom, and what is held back for it."""

import asyncio
from typing import Any

import pytest

from kohort.client.config import config_from
from kohort.client.core.errors import IllegalStateError
from kohort.client.core.group.subscription import Subscription
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.group.commits import Commits
from kohort.client.open_calls import OpenCalls
from tests.support.virtual_time import virtual
from tests.unit.client.scripted_brokers import Scene as FetchScene
from tests.unit.client.scripted_coordinator import A, B, Scene


class Committing:
    """A consumer that has read A and B, up to 3 and 0."""

    def __init__(self, scene: Scene, **settings: Any) -> None:  # noqa: ANN401 - any of them.
        fetching = FetchScene(1, 1)
        fetching.one.append(0, *[b"v"] * 9)
        self.fetcher = fetching.fetcher
        self.positions = fetching.positions
        self.positions.seek(A, 3)
        self.subscription = Subscription()
        self.subscription.subscribe(["t"])
        self.subscription.assigned = frozenset({A, B})
        self.commits = Commits(
            config_from({"group_id": "g", **settings}),
            scene.offsets,
            subscription=self.subscription,
            positions=self.positions,
            fetcher=self.fetcher,
            calls=OpenCalls(),
        )


def stored(scene: Scene) -> dict[int, int]:
    return {index: offset for index, (offset, _, _) in scene.broker.stored.items()}


@virtual
async def test_while_a_run_handles_records_it_says_what_is_committed_and_auto_commit_rests() -> (
    None
):
    scene = Scene()
    given = Committing(scene)
    given.commits.handled = lambda: {A: OffsetAndMetadata(1)}
    given.commits.begin()
    await given.commits.commit_last(10**9, commits_all=True)
    assert given.commits.idle_until_s == float("inf")
    assert stored(scene) == {}
    await given.commits.commit(None)
    assert stored(scene) == {0: 1}
    given.commits.handled = None
    await given.commits.commit_last(10**9, commits_all=True)
    assert stored(scene) == {0: 3, 1: 0}


@virtual
async def test_what_the_group_may_have_given_to_others_is_not_committed() -> None:
    scene = Scene()
    given = Committing(scene)
    given.subscription.assigned = frozenset({A})
    with pytest.raises(IllegalStateError, match="t-1 is not assigned"):
        await given.commits.commit({A: 1, B: 1})
    assert stored(scene) == {}


@virtual
async def test_the_last_commit_holds_records_back_unless_it_is_cancelled() -> None:
    scene = Scene()
    given = Committing(scene)
    last = asyncio.create_task(given.commits.commit_last(10**9, commits_all=True))
    await asyncio.sleep(0)
    assert given.positions.hold([A, B]) == [], "they are held already"
    last.cancel()
    await asyncio.wait([last])
    assert stored(scene) == {}
    assert given.positions.hold([A, B]) == [A, B]
    given.positions.release([A, B])
    await given.commits.commit_last(10**9, commits_all=True)
    assert stored(scene) == {0: 3, 1: 0}
    assert given.positions.hold([A, B]) == []
