"""What of a history is still to be written, and under which numbers."""

from typing import Any

import pytest

from kohort.watch.core.backlog import Backlog

Json = dict[str, Any]


def record(sequence: int, offset: int, group: str = "g", **more: object) -> Json:
    observed = {"by": [], "partition": 0, "offset": offset}
    return {"group": group, "sequence": sequence, "observed": observed, **more}


def backlog(*stored: Json) -> Backlog:
    made = Backlog()
    for one in stored:
        made.note(one)
    return made


def written(backlog: Backlog, *offered: Json) -> list[tuple[int, int]]:
    """Offer and write records; return offsets and numbers of those that were missing."""
    for one in offered:
        backlog.offer(one)
    missing = backlog.missing()
    for one in missing:
        backlog.note(one)
    assert backlog.missing() == []
    return [(one["observed"]["offset"], one["sequence"]) for one in missing]


def test_groups_of_a_partition_come_in_any_order() -> None:
    later, earlier = record(1, 6, "a"), record(1, 5, "b")
    assert written(backlog(later), later, earlier) == [(5, 1)]


def test_of_the_records_of_one_offset_those_not_stored_are_missing() -> None:
    records = [record(number, 5) for number in (1, 2, 3)]
    assert written(backlog(*records[:2]), *records) == [(5, 3)]


def test_a_repeated_record_counts_once() -> None:
    records = [record(number, 5) for number in (1, 2, 3)]
    assert written(backlog(*records[:2], *records[:2]), *records) == [(5, 3)]


def test_late_records_of_a_watcher_that_was_paused_change_nothing() -> None:
    stored = [record(number, number) for number in range(1, 6)]
    made = backlog(*stored, *stored[1:3])
    assert written(made, *stored, record(6, 6)) == [(6, 6)]


def test_what_was_not_written_is_still_missing() -> None:
    made = backlog()
    made.offer(record(1, 5))
    made.offer(record(2, 6))
    made.note(made.missing()[0])
    assert [one["sequence"] for one in made.missing()] == [2]
    assert len(made) == 1


def test_one_that_stands_by_drops_what_another_has_written() -> None:
    made = backlog()
    made.offer(record(1, 5))
    made.offer(record(2, 6))
    made.note(record(1, 5))
    assert [one["sequence"] for one in made.missing()] == [2]


def test_a_watcher_that_begins_later_continues_the_numbers() -> None:
    # It began when the group had generation 10; the one before had seen two avoided rebalances.
    made = backlog(record(11, 50), record(12, 60))
    assert written(made, record(9, 50), record(10, 60), record(11, 70)) == [(70, 13)]
    assert written(made, record(12, 80, follows=11, superseded_by=None)) == [(80, 14)]


def test_references_to_other_records_are_shifted_too() -> None:
    made = backlog(record(11, 50))
    made.offer(record(9, 50))
    made.offer(record(10, 60, follows=9, superseded_by=11))
    (missing,) = made.missing()
    assert (missing["sequence"], missing["follows"], missing["superseded_by"]) == (12, 11, 13)


def test_one_that_stands_by_adopts_the_numbers_of_the_one_that_writes() -> None:
    made = backlog()
    made.offer(record(4, 50))
    made.offer(record(5, 60))
    made.note(record(9, 50))
    assert [one["sequence"] for one in made.missing()] == [10]


@pytest.mark.parametrize(("first", "continued"), [(3, 8), (8, 8), (20, 20)])
def test_numbers_grow_where_the_last_stored_record_is_not_made_again(
    first: int, continued: int
) -> None:
    """Compaction has removed what it was made of. If the numbers jump, records are lost."""
    made = backlog(record(7, 50))
    assert written(made, record(first, 60), record(first + 1, 70)) == [
        (60, continued),
        (70, continued + 1),
    ]


def test_the_history_of_a_broker_is_continued() -> None:
    made = backlog({"group": "g", "sequence": 41, "observed": None}, {"group": "g", "sequence": 40})
    assert written(made, record(3, 10), record(4, 11)) == [(10, 42), (11, 43)]


def test_a_record_is_returned_as_it_will_be_stored() -> None:
    made = backlog(record(7, 50))
    assert made.offer(record(2, 50))["sequence"] == 7
    assert made.offer(record(3, 60))["sequence"] == 8
    assert made.missing()[0]["sequence"] == 8


@pytest.mark.parametrize(
    "other",
    [
        {},
        [],
        {"group": 1, "sequence": 1},
        {"group": "g", "sequence": "1"},
        {"group": "g", "sequence": 1, "observed": {"partition": 0, "offset": "x"}},
    ],
)
def test_what_is_no_record_is_refused(other: Json) -> None:
    with pytest.raises((TypeError, KeyError)):
        Backlog().note(other)
