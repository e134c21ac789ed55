"""A watcher reads the __consumer_offsets of simulated brokers, whose own history is the truth."""

from collections import Counter
from collections.abc import Iterator

import pytest

from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.groups.history.model import HistoryRecord, RebalanceRecord
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.partition import OffsetsPartition
from kohort.watch.core.watcher import Json, Watcher
from tests.simulation.life import CALM, ROUGH, Climate, GroupLife, make_world
from tests.simulation.world import OFFSETS_PARTITIONS, Life, World

WORLDS_SHORT, WORLDS_LONG = 3, 800
EVENTS = 500

Truth = dict[tuple[str, int, int | None], RebalanceRecord]
"""By group, and the generations before and after."""


class WatchedWorld:
    """A world, and what its brokers recorded about it."""

    def __init__(self, seed: str, climate: Climate, commits: float) -> None:
        self.truth: Truth = {}
        self.world = make_world(seed, climate)
        self.world.commits, self.world.commits_owned = commits, True
        self._start = self.world.start_broker
        self.world.start_broker = self._start_broker  # type: ignore[method-assign]
        self.world.run(GroupLife(self.world, climate).run(EVENTS))

    async def _start_broker(self, **settings: str) -> Life:
        life = await self._start(**settings)

        def hear(record: HistoryRecord) -> None:
            if isinstance(record, RebalanceRecord) and not life.is_dead:
                key = record.group, record.previous_generation, record.generation
                self.truth[key] = record

        life.broker.history.add_listener(hear)
        return life


def watch(world: World) -> Iterator[Json]:
    """Yield the history that a watcher makes of what is on the disk."""
    watcher = Watcher({}, lambda group: Timeouts())
    for index in range(OFFSETS_PARTITIONS):
        partition = OffsetsPartition(watcher, index)
        for path in sorted(world.files.paths()):
            if f"/{CONSUMER_OFFSETS}-{index}/" in path and path.endswith(".log"):
                yield from partition.take(bytes(world.files.cached(path)), 1 << 62)
    yield from watcher.flush()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("climate", [CALM, ROUGH], ids=["calm", "rough"])
def test_what_a_watcher_calls_certain_is_in_the_history_of_the_broker(
    climate: Climate, long_form: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: Counter[str] = Counter()
    for number in range(WORLDS_LONG if long_form else WORLDS_SHORT):
        watched = WatchedWorld(f"watch.test.{number}", climate, commits=0.3 + number % 3 * 0.3)
        for record in watch(watched.world):
            if record["kind"] == "rebalance":
                key = record["group"], record["previous_generation"], record["generation"]
                truth = watched.truth.get(key)
                if truth is not None:
                    seen["rebalances"] += 1
                    _compare(record, truth, seen)
    with capsys.disabled():
        print(f"\n{dict(seen)}")
    assert seen["certain causes"] > seen["rebalances"] // 30
    assert seen["certain fates"] > seen["rebalances"] // 60


def _compare(record: Json, truth: RebalanceRecord, seen: Counter[str]) -> None:
    trigger = record["trigger"]
    if trigger["certainty"] == "certain":
        seen["certain causes"] += 1
        assert truth.trigger.kind.value == trigger["kind"], (record, truth)
    fates = {member.member_id: member.fate.value for member in truth.members}
    for member in record["members"]:
        if member.get("certainty") == "certain":
            seen["certain fates"] += 1
            # Both are a LeaveGroup.
            fate = fates[member["member_id"]].replace("removed_by_admin", "left")
            assert fate == member["fate"], (record, truth)
