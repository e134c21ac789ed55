"""A record as a picture: pure, so each line is looked at."""

import re
from typing import Any

import pytest

from kohort.cli.groups.drawing import ASCII, Line, Symbols, draw

STARTED_MS = 1_767_362_451_000


def member(name: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """One that was told after 200 ms, joined after 400 and had its assignment after 1,000."""
    return {
        "member_id": name,
        "instance_id": None,
        "told_ms": 200,
        "join_received_ms": 400,
        "join_answered_ms": 800,
        "sync_received_ms": 850,
        "sync_answered_ms": 1_000,
        "fate": "kept",
        "fate_ms": None,
        "mode": "eager",
        "stopped_ms": 600,
        "stopped_open": False,
    } | changes


def record(*members: dict[str, Any], **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "started_at_ms": STARTED_MS,
        "outcome": "stable",
        "leader": "a",
        "trigger": {"member_id": None},
        "waited_for": {"member_ids": []},
        "timeline": {"join_phase_ms": 800, "finished_ms": 1_000},
        "stopped": {"member_count": len(members), "longest_ms": 600, "total_ms": 1_200},
        "members": list(members),
        "members_dropped": 0,
    } | changes


def picture(
    data: dict[str, Any],
    *,
    now_ms: int = STARTED_MS + 1_000,
    width: int = 100,
    members: int = 20,
) -> list[Line]:
    return draw(data, now_ms=now_ms, width=width, members=members, symbols=ASCII)


def drawn(data: dict[str, Any], **options: int) -> list[str]:
    return [line.text for line in picture(data, **options)]


def bar_of(data: dict[str, Any], place: int = 0, **options: int) -> str:
    """The middle of a member's line, below the two of the scale."""
    return "".join(span.text for span in picture(data, **options)[2 + place].spans[1:-1])


def symbols_of(bar: str) -> list[str]:
    """One of each run."""
    return [run[0][0] for run in re.finditer(r"(.)\1*", bar)]


def shares_of(bar: str) -> list[float]:
    """How much of the bar each run takes."""
    return [len(run[0]) / len(bar) for run in re.finditer(r"(.)\1*", bar)]


def test_what_a_member_did_stands_from_left_to_right_in_proportion() -> None:
    line = drawn(record(member("a")))[2]
    assert line.startswith("a *  ")
    assert line.endswith("  stopped 600 ms")
    bar = bar_of(record(member("a")))
    assert symbols_of(bar) == ["-", ".", "=", "#"]
    assert shares_of(bar) == pytest.approx([0.2, 0.2, 0.4, 0.2], abs=0.03)


def test_a_cooperative_member_goes_on_with_what_it_keeps() -> None:
    data = record(
        member("a", mode="cooperative", stopped_ms=0),
        member("b", mode="cooperative", stopped_ms=70),
    )
    lines = drawn(data)  # The longest stop comes first.
    assert lines[3].endswith("  kept consuming")
    assert lines[2].endswith("  gained partitions after 70 ms")


def consumer(name: str, **changes: Any) -> dict[str, Any]:  # noqa: ANN401
    """A member of a consumer group: it lost partitions, then waited for those of another."""
    classic = dict.fromkeys(member(name))
    return {
        **classic,
        "member_id": name,
        "fate": "kept",
        "mode": "consumer",
        "told_ms": 400,
        "reached_ms": 600,
        "completed_ms": 900,
    } | changes


def of_consumers(*members: dict[str, Any]) -> dict[str, Any]:
    timeline = {"join_phase_ms": None, "durable_ms": 100, "finished_ms": 1_000}
    return record(*members, group_type="consumer", timeline=timeline, leader=None)


def test_a_consumer_works_until_the_assignment_that_it_does_not_know_yet() -> None:
    data = of_consumers(consumer("a"))
    assert symbols_of(bar_of(data)) == ["-", "#", ".", "=", "-"]
    assert shares_of(bar_of(data)) == pytest.approx([0.1, 0.3, 0.2, 0.3, 0.1], abs=0.03)
    _, mark, line, legend = drawn(data)
    assert mark.endswith("| assigned at 100 ms")
    assert line.endswith("  complete after 900 ms")
    assert "leads" not in legend


def test_the_consumers_that_are_not_complete_stand_first() -> None:
    late = consumer("late", fate="new", told_ms=100, reached_ms=100, completed_ms=None)
    data = of_consumers(consumer("a"), late)
    assert symbols_of(bar_of(data)) == [" ", "="]
    assert drawn(data)[2].endswith("new, not complete yet")


def test_the_scale_says_how_long_it_took_and_when_the_joins_ended() -> None:
    top, joins = drawn(record(member("a")))[:2]
    assert top.split() == ["0", "1", "s"]
    assert joins.endswith("joins ended at 800 ms |")


def test_a_member_that_was_fast_works_until_the_end() -> None:
    fast = member("b", join_received_ms=250, sync_answered_ms=900, stopped_ms=100)
    assert bar_of(record(member("a"), fast), 1).endswith("-")


def test_a_phase_of_no_length_is_still_seen() -> None:
    bar = bar_of(record(member("a", join_received_ms=799, join_answered_ms=800)))
    assert symbols_of(bar) == ["-", ".", "=", "#"]


def test_a_new_member_is_absent_before_it_joins() -> None:
    new = member("n", fate="new", told_ms=None, join_received_ms=500, stopped_ms=500)
    bar = bar_of(record(new))
    assert symbols_of(bar) == [" ", "=", "#"]
    assert shares_of(bar)[0] == pytest.approx(0.5, abs=0.03)
    assert drawn(record(new))[2].endswith("new, waited 500 ms")


def test_a_member_that_ceased_to_be_one_ends_there_and_says_how() -> None:
    gone = member(
        "g",
        fate="session_expired",
        fate_ms=500,
        told_ms=100,
        join_received_ms=None,
        join_answered_ms=None,
        sync_answered_ms=None,
        stopped_ms=None,
    )
    data = record(member("a"), gone)
    assert symbols_of(bar_of(data, 1)) == ["-", ".", "X", " "]
    assert drawn(data)[3].endswith("session expired")


def test_the_slowest_stand_first_after_those_whom_the_sentence_names() -> None:
    data = record(
        member("fast", stopped_ms=10),
        member("slow", stopped_ms=900),
        member("cause", stopped_ms=0),
        member("middle", stopped_ms=500),
        trigger={"member_id": "cause"},
    )
    names = [line.split()[0] for line in drawn(data)[2:6]]
    assert names == ["cause", "slow", "middle", "fast"]


def test_of_thousands_the_slowest_are_drawn_and_the_rest_is_summed() -> None:
    members = [member(f"m{number}", stopped_ms=number) for number in range(1_000)]
    lines = drawn(record(*members, members_dropped=4_000), members=10)
    assert [line.split()[0] for line in lines[2:12]] == [f"m{999 - n}" for n in range(10)]
    assert lines[12].startswith("and 4,990 more; 1,000 members stopped, for 600 ms at the longest")
    assert len(lines) == 14


def test_a_rebalance_that_runs_is_drawn_until_now() -> None:
    waits = member("a", join_answered_ms=None, sync_answered_ms=None, stopped_open=True)
    data = record(waits, outcome="running", timeline={"join_phase_ms": None, "finished_ms": None})
    top, line = drawn(data, now_ms=STARTED_MS + 4_000)[:2]
    # Without the end of the joins the scale is one line.
    bar = "".join(span.text for span in picture(data, now_ms=STARTED_MS + 4_000)[1].spans[1:-1])
    assert top.split() == ["0", "4", "s"]
    assert symbols_of(bar) == ["-", ".", "="]
    assert shares_of(bar)[-1] == pytest.approx(0.9, abs=0.03)
    assert line.endswith("so far")


def test_a_static_member_goes_by_its_own_name_and_the_leader_is_marked() -> None:
    line = drawn(record(member("a", instance_id="pod-1")))[2]
    assert line.startswith("pod-1 *")


def test_a_long_name_keeps_its_unique_end_and_a_hostile_one_breaks_no_line() -> None:
    lines = drawn(record(member("billing-" + "x" * 100 + "-unique"), member("a\n\x1b[2Jb")))
    assert "-unique" in lines[2]
    assert "a\\n\\x1b[2Jb" in lines[3]


@pytest.mark.parametrize("width", [1, 40, 60, 80, 200])
def test_lines_keep_to_the_width(width: int) -> None:
    data = record(*(member(f"member-{number:060}") for number in range(3)))
    assert {len(line) for line in drawn(data, width=width)[2:5]} == {max(width, 60)}


def test_a_rebalance_without_members_or_time_is_drawn_too() -> None:
    nobody = record(timeline={"join_phase_ms": 0, "finished_ms": 0}, outcome="empty")
    assert len(drawn(nobody)) == 3
    assert drawn(record(member("a"), timeline={"join_phase_ms": None, "finished_ms": None}))


def test_symbols_differ_without_colours() -> None:
    for symbols in (Symbols(), ASCII):
        used = {getattr(symbols, name) for name in symbols.__slots__}
        assert len(used) == len(symbols.__slots__)
    assert all(ord(getattr(ASCII, name)) < 128 for name in ASCII.__slots__)
