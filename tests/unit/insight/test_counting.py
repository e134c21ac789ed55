"""Numbers with their nouns."""

import pytest

from kohort.insight.output import counted


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 groups"), (1, "1 group"), (2, "2 groups"), (1_200, "1,200 groups")]
)
def test_a_number_of_one_has_a_noun_of_one(count: int, text: str) -> None:
    assert counted(count, "group") == text
