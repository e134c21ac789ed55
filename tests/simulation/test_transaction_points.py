"""A kill at each point of a transaction: the next start makes of it what the protocol promises."""

from collections import Counter
from itertools import product

import pytest

from tests.simulation.transactions.points import (
    Content,
    Ending,
    Kill,
    Point,
    Scenario,
    Story,
    go_on,
)
from tests.simulation.transactions.states import Examiner

EVERY = [
    Scenario(*parts) for parts in product((1, 2), Ending, (False, True), Content)
]  # fmt: skip
SHORT = {
    Scenario(1, Ending.COMMIT, is_forced=True, content=Content.BOTH),
    Scenario(2, Ending.ABORT, is_forced=False, content=Content.DATA),
    Scenario(2, Ending.COMMIT, is_forced=True, content=Content.OFFSETS),
    Scenario(1, Ending.FENCE, is_forced=False, content=Content.OFFSETS),
    Scenario(2, Ending.TIMEOUT, is_forced=False, content=Content.OFFSETS),
}
"""In which every flow, ending, way of flushing and content occurs, and every point."""
KILLS_SHORT = 3
"""Kills at each point."""

pytestmark = pytest.mark.usefixtures("silent_brokers")


def examine(story: Story, kill: Kill, examiner: Examiner) -> None:
    async def work(broker: object) -> None:
        await examiner.hold_against(broker, kill.state, story.ledger)  # type: ignore[arg-type]
        await go_on(broker, kill, story.scenario)  # type: ignore[arg-type]

    examiner.start_on(kill.state, work)


@pytest.mark.parametrize(
    "scenario",
    [one if one in SHORT else pytest.param(one, marks=pytest.mark.long) for one in EVERY],
    ids=str,
)
def test_a_kill_at_every_point(scenario: Scenario, long_form: bool) -> None:
    story = Story(scenario)
    story.run()
    examined = examine_all(story, kills_max=None if long_form else KILLS_SHORT)
    print(scenario, {point.name: count for point, count in examined.items()})
    assert set(examined) == scenario.points()


def examine_all(story: Story, kills_max: int | None) -> Counter[Point]:
    """How many kills of each point were examined: all of them, or so many."""
    scenario = story.scenario
    examiner = Examiner(is_forced=scenario.is_forced)
    examined: Counter[Point] = Counter()
    for kill in story.kills:
        if kill.point is None or examined[kill.point] == kills_max:
            continue
        examined[kill.point] += 1
        try:
            examine(story, kill, examiner)
        except BaseException as error:
            error.add_note(f"{scenario}, kill {kill.state.number}: {kill.point.value}")
            examiner.close()
            raise
    examiner.close()
    return examined
