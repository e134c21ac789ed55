"""Whole consumers, with the applications that use them, through all that can happen to them."""

import time

import pytest

from tests.simulation.consuming.campaign import STEPS, describe, live_many
from tests.simulation.consuming.life import Tally, live


@pytest.mark.parametrize("seed", range(2))
def test_consumers_keep_their_promises_and_get_all_done_when_left_alone(seed: int) -> None:
    """Nothing is committed that was not processed, or behind another owner's position; nothing is
    returned of a partition that is not held; callbacks run to their end, once.
    """
    tally = live(f"short.{seed}", 120)
    assert tally.records > 100
    assert tally.commits > 10


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_consumers_keep_their_promises_for_a_million_steps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun_s, total = time.monotonic(), Tally()
    for tally in live_many("long", 1_000_000):
        total.add(tally)
        with capsys.disabled():
            if total.lives % 100 == 0:
                print(f"\n{describe(total, begun_s)}")
    assert total.steps >= 1_000_000
    assert total.lives > 100_000 // STEPS
