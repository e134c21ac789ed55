"""The partition of an id: Java's string hash, in its Python and its compiled form."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kohort.broker.core import coordinator_partitions
from kohort.broker.core.coordinator_partitions import java_hash, partition_of
from tests.support.both_forms import BothForms

FORMS = BothForms(coordinator_partitions)


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        # Printed by Java: `"...".hashCode()`.
        ("", 0),
        ("a", 97),
        ("hello world", 1794106052),
        ("polygenelubricants", -2147483648),
        ("Aa", 2112),
        ("\U0001f600", 1772899),
    ],
)
def test_the_hash_is_javas(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed
    assert FORMS.as_written.java_hash(text) == hashed


def test_the_hash_without_an_absolute_value_counts_as_0() -> None:
    assert partition_of("polygenelubricants", 50) == 0


@given(st.text(max_size=2_000))
@example("\uffff" * 32_767)
@example("\ud83d")
def test_both_forms_hash_alike(text: str) -> None:
    assert FORMS.compiled().java_hash(text) == FORMS.as_written.java_hash(text)
