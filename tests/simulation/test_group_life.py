"""Groups live for hours on a slow disk and network, whose power fails. Nothing may go wrong."""

import time

import pytest

from tests.simulation.campaign import Tally, describe, live_many

WORLDS = 8


@pytest.mark.timeout(1200)
def test_groups_keep_their_promises_on_a_rough_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """No partition has two owners, generations only grow, every request is answered or its
    connection closed, what was committed stays, groups settle, and nothing is left waiting.
    """
    begun_s, total = time.monotonic(), Tally()
    for tally in live_many("rough.test", "rough", WORLDS):
        total.add(tally)
    with capsys.disabled():
        print(f"\n{describe(total, begun_s)}")

    assert total.worlds == WORLDS
    assert total.virtual_s > 2 * 3600
    assert total.starts > 2 * WORLDS
