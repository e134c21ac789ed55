"""Which records count as lost, by offsets alone."""

import pytest

from kohort.pipeline.landing.gaps import RETENTION, TRUNCATED, Gap, lost, missing, sentence


def test_what_is_before_the_start_of_a_log_is_lost_as_far_as_it_was_wanted() -> None:
    assert lost({0: 5, 1: 5}, {0: 9, 1: 5}, {0: 20, 1: 20}) == [Gap(0, 5, 9, RETENTION)]


def test_a_new_partition_is_wanted_from_its_first_record() -> None:
    assert lost({0: 5}, {0: 5, 1: 0}, {0: 5, 1: 3}) == []
    assert lost({0: 5}, {0: 5, 1: 2}, {0: 5, 1: 3}) == [Gap(1, 0, 2, RETENTION)]


def test_a_log_that_ends_before_what_was_read_is_no_end_of_a_log() -> None:
    assert lost({0: 5}, {0: 0}, {0: 5}) == []
    assert lost({0: 5}, {0: 0}, {0: 4}) == [Gap(0, 4, 5, TRUNCATED)]


@pytest.mark.parametrize(
    ("present", "holes"),
    [
        ([], [(10, 20)]),
        ([(10, 20)], []),
        ([(10, 14)], [(14, 20)]),
        ([(14, 20)], [(10, 14)]),
        ([(11, 13), (15, 18)], [(10, 11), (13, 15), (18, 20)]),
        ([(8, 12), (19, 25)], [(12, 19)]),
    ],
)
def test_holes_are_what_lies_between_stretches(
    present: list[tuple[int, int]], holes: list[tuple[int, int]]
) -> None:
    assert missing(present, 10, 20) == holes


def test_a_few_gaps_are_named_and_many_are_counted() -> None:
    gaps = [Gap(partition, 0, 3, RETENTION) for partition in range(12)]
    text = sentence("orders", gaps)
    assert "orders" in text
    assert "partition 9 offsets 0 to 2" in text
    assert "partition 10" not in text
    assert text.endswith("and 2 more")
