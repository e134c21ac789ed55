from pathlib import Path

import pytest

from benchmarks.harness import Bench

SIZES = ("1,000 members", "5,000 members")


def wanted(only: str) -> list[str]:
    return Bench(1, Path(), (), only=only).wanted(SIZES, str)


def test_parts_are_chosen_by_what_they_are_called() -> None:
    assert wanted("") == list(SIZES)
    assert wanted("5,000") == wanted("5000") == wanted("5000 MEMBERS") == ["5,000 members"]


def test_nothing_left_is_said_to_be_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"--only 7 leaves nothing of 1,000 members, 5,000"):
        wanted("7")
