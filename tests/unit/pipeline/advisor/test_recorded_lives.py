"""Lives of other people's clients, lived once, and held against the advisor each time.

`tests/interop/lives` has lived them, and keeps what it lives in such files: four lives in each of
five ways, on two cores at a load of 5 to 8.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.lives.fidelity import hold, recordings
from tests.interop.lives.life import load


@pytest.mark.parametrize("library", ["librdkafka", "aiokafka"])
def test_what_is_predicted_and_advised_of_lives_is_how_they_were_lived(library: str) -> None:
    lives = load(Path(__file__).parent / f"lives-of-{library}.json.gz")
    assert len(lives) == 20

    hold(list(recordings(lives)))
