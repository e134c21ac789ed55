"""A prediction takes as many replays as its mean needs."""

from types import SimpleNamespace
from typing import Any

import pytest

from kohort.insight.advisor.prediction import _is_enough


@pytest.mark.parametrize(
    ("stopped_ms", "is_enough"),
    [
        ([100_000, 101_000, 100_000, 101_000], False),
        ([100_000, 101_000, 100_000, 101_000, 100_000], True),
        ([100_000, 150_000, 100_000, 150_000, 100_000], False),
        # Below a second, the same distance is enough as at a second.
        ([0, 100, 0, 100, 0], True),
        ([100_000, 150_000] * 10, True),
    ],
)
def test_replays_end_when_the_mean_is_precise_or_at_a_maximum(
    stopped_ms: list[int], is_enough: bool
) -> None:
    outcomes: list[Any] = [SimpleNamespace(stopped_ms=value) for value in stopped_ms]
    assert _is_enough(outcomes) is is_enough
