"""Handlers side by side, through all that goes wrong: nothing is lost, and order is kept."""

import pytest

from tests.simulation.handling import HandlingLife


@pytest.mark.parametrize("ordering", ["key", "partition"])
@pytest.mark.parametrize("is_eager", [True, False], ids=["eager", "cooperative"])
def test_each_record_is_handled_in_order_and_committed_only_then(
    ordering: str, is_eager: bool, long_form: bool
) -> None:
    for seed in range(150 if long_form else 2):
        try:
            HandlingLife(str(seed), ordering=ordering, is_eager=is_eager).run(30)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_commit_that_is_due_within_no_time_at_all_is_made() -> None:
    """In this life a poll had a time that was over before it began, again and again."""
    HandlingLife("5000", ordering="partition", is_eager=True).run(30)
