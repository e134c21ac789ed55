"""Groups live for hours on a slow disk and network, whose power fails. Nothing may go wrong."""

import time

import pytest

from tests.simulation.campaign import Tally, describe, live_many

WORLDS_SHORT, WORLDS_LONG = 2, 8


@pytest.mark.timeout(1200)
def test_groups_keep_their_promises_on_a_rough_machine(
    capsys: pytest.CaptureFixture[str], long_form: bool
) -> None:
    """No partition has two owners, generations only grow, every request is answered or its
    connection closed, what was committed stays, groups settle, and nothing is left waiting.
    """
    begun_s, total = time.monotonic(), Tally()
    worlds = WORLDS_LONG if long_form else WORLDS_SHORT
    for tally in live_many("rough.test", "rough", worlds):
        total.add(tally)
    with capsys.disabled():
        print(f"\n{describe(total, begun_s)}")

    assert total.worlds == worlds
    assert total.virtual_s > worlds * 900
    assert total.starts > 2 * worlds
