"""Long work is cut up in one place, whose iterations between slices are all work's."""

import re
from pathlib import Path
from typing import Final

BROKER: Final = Path(__file__).parents[3] / "kohort/broker"

OTHERS: Final = {
    "topics/partition.py": "what is appended later in this iteration of the loop shares its flush",
}
"""Waits for the end of an iteration, which cut up no work."""


def test_only_slices_give_the_loop_away_between_pieces_of_work() -> None:
    found = {
        path.relative_to(BROKER).as_posix()
        for path in BROKER.rglob("*.py")
        if re.search(r"\bsleep\(0\)", path.read_text())
    }
    assert found == {"runtime/slices.py", *OTHERS}
