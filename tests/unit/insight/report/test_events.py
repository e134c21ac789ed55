"""Records of one group: which are events, and who caused what."""

from typing import Any

import pytest

from kohort.insight.analysis.rows import is_event
from kohort.insight.report.events import History, by_time, causes
from kohort.insight.report.from_history import group_page
from tests.unit.insight.report.pages import BEGIN_MS, event


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {"schema": 2, "kind": "rebalance"},
        {"schema": 1, "kind": "rebalance", "group": "g"},
        event(1, 0, outcome="running"),
        {**event(1, 0), "sequence": "1"},
        event(1, 0, trigger={"kind": 7}),
        event(1, 0, kind="moon"),
    ],
)
def test_what_is_no_complete_event_is_none(record: object) -> None:
    assert not is_event(record)
    assert is_event(event(1, 0))


@pytest.mark.parametrize(
    "broken", [{"members": [7]}, {"timeline": 3}, {"stopped": {"total_ms": "long"}}]
)
def test_a_value_of_another_type_is_an_error(broken: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="not a history"):
        group_page(History("g", [event(1, 0), event(2, 9, **broken)]))


def test_records_of_another_group_are_an_error() -> None:
    with pytest.raises(ValueError, match="2 groups"):
        History("g", [event(1, 0), event(2, 0, group="h")])


def test_events_are_told_in_the_order_of_their_numbers_and_once() -> None:
    again = event(2, 7, outcome="empty")
    made = History("g", [event(3, 9), event(2, 5), event(1, 0), again])
    assert [one["sequence"] for one in made.events] == [1, 2, 3]
    assert made.events[1]["outcome"] == "empty"


def test_bars_stand_where_there_were_rebalances() -> None:
    rows = History("g", [event(1, 0), event(2, 5), event(3, 65)]).rebalances()
    assert by_time(rows, 60_000) == [
        {"at_ms": BEGIN_MS, "rebalance_count": 2, "stopped_total_ms": 3_980},
        {"at_ms": BEGIN_MS + 60_000, "rebalance_count": 1, "stopped_total_ms": 1_990},
    ]


def test_a_cause_has_the_longest_stop_of_its_acts_and_the_sum_of_all() -> None:
    sums = ["rebalance_count", "second_half_count", "avoided_count", "needless_count"]
    sums += ["stopped_total_ms", "likely_count", "unclear_count"]
    acts = [
        dict.fromkeys(sums, count)
        | {"kind": "deploy", "stopped_longest_ms": 100 * count, "started_at_ms": count}
        | {"processes": ["a", "b"][:count]}
        for count in (1, 2)
    ]
    assert causes(acts) == [
        dict.fromkeys(sums, 3)
        | {"kind": "deploy", "act_count": 2, "stopped_longest_ms": 200, "last_at_ms": 2}
        | {"process_counts": [("a", 2), ("b", 1)]}
    ]
