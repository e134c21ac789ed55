import pytest

from kohort.pipeline.memory import batched


@pytest.mark.parametrize(
    ("weights", "batches"),
    [
        ({}, []),
        ({"a": 1}, [["a"]]),
        ({"a": 9, "b": 1}, [["a"], ["b"]]),
        ({"a": 1, "b": 2, "c": 1, "d": 3}, [["a", "b"], ["c"], ["d"]]),
        ({"a": 0, "b": 3, "c": 0}, [["a", "b", "c"]]),
    ],
    ids=["none", "one", "too heavy alone", "in order", "weightless"],
)
def test_keys_come_together_up_to_a_weight(
    weights: dict[str, int], batches: list[list[str]]
) -> None:
    assert list(batched(weights, 3)) == batches
