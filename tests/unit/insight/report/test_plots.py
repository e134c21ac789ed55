"""Plots: axes as long as the history, words for those who do not see them, colours never alone."""

import re

import pytest

from kohort.insight.report.contents import Ownership
from kohort.insight.report.events import History
from kohort.insight.report.from_history import group_page
from kohort.insight.report.markup import NBSP, element
from kohort.insight.report.ownership import ownership
from kohort.insight.report.scales import Times, nice_interval
from kohort.insight.report.svg import time_axis
from kohort.insight.report.timeline import timeline
from tests.unit.insight.report.pages import BEGIN_MS, event, page

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


@pytest.mark.parametrize(
    ("span_ms", "named"),
    [
        (3 * SECOND, r"10:00:0\d"),
        (4 * MINUTE, r"10:0\d"),
        (5 * HOUR, r"1\d:\d\d"),
        (40 * HOUR, r"\d\d:00|6 Jan|7 Jan"),
        (6 * DAY, r"\d+ Jan"),
        (400 * DAY, r"\d+ \w{3}"),
        (9_000 * DAY, r"\d+ \w{3}"),
    ],
)
def test_the_axis_of_time_is_as_long_as_the_history(span_ms: int, named: str) -> None:
    times = Times.around(BEGIN_MS, BEGIN_MS + span_ms, 40, 900)
    ticks = times.ticks(8)
    assert 2 <= len(ticks) <= 9
    assert all(re.fullmatch(named, text) for _, text in ticks), ticks
    assert [x for x, _ in ticks] == sorted(x for x, _ in ticks)
    # The history fills its axis.
    assert times.place(BEGIN_MS) < 70
    assert times.place(BEGIN_MS + span_ms) > 720 or span_ms < MINUTE


def test_a_history_of_minutes_is_drawn_in_minutes() -> None:
    events = [event(number, 20 * number) for number in range(1, 10)]
    drawn = timeline(group_page(History("g", events)))
    assert ">10:01<" in drawn
    assert "Jan<" not in drawn
    assert f"a bar for each 5{NBSP}s" in drawn


def test_where_no_stopped_time_is_known_none_is_drawn() -> None:
    made = group_page(History("g", [event(n, n, stopped={}) for n in (1, 2, 3)]))
    drawn = timeline(made)
    assert ">Rebalances<" in drawn
    assert "were stopped" not in drawn


def test_one_rebalance_is_a_plot_too() -> None:
    drawn = timeline(group_page(History("g", [event(1, 0)])))
    assert drawn.count("<svg") == 2
    assert "NaN" not in drawn
    # Its bar is a bar, with room beside it.
    widths = [float(one) for one in re.findall(r'width="([\d.]+)" [^>]*class="count"', drawn)]
    assert len(widths) == 2
    assert max(widths) < 100
    assert "Mon 5 Jan 2026, 10:00:00 UTC, a bar" in drawn


@pytest.mark.parametrize("highest", [0.2, 1, 7, 99, 12_345])
def test_an_even_axis_counts_in_round_steps(highest: float) -> None:
    interval = nice_interval(highest, 4)
    assert highest / interval <= 4
    assert f"{interval:g}".strip("0.")[0] in "125"


def test_each_plot_says_in_words_what_it_shows() -> None:
    made = page()
    drawn = [timeline(made), ownership(made)]
    alts = [re.findall(r'role="img" aria-label="([^"]+)"', one) for one in drawn]
    # One for each width, and the same.
    assert [len(one) for one in alts] == [2, 2]
    (time, _), (owners, _) = alts
    assert "141 rebalances, Mon 5 Jan 2026, 00:00:00 to Sun 11 Jan 2026, 07:13:25" in time
    assert f"10{NBSP}min in 11 rebalances" in time
    assert "Owners of 24 partitions" in owners
    assert "6 owners" in owners


def test_each_plot_is_drawn_for_wide_pages_and_for_telephones() -> None:
    made = page()
    for drawn in (timeline(made), ownership(made)):
        widths = re.findall(r'class="(wide|narrow)" viewBox="0 0 (\d+) \d+"', drawn)
        assert widths == [("wide", "900"), ("narrow", "350")]


def test_a_narrow_timeline_has_at_most_four_time_labels_and_a_wide_one_more() -> None:
    _, wide, narrow = timeline(page()).split("<svg")
    times = [len(re.findall(r">\d+ Jan<", drawn)) for drawn in (wide, narrow)]
    assert times[0] > 4 >= times[1] > 1


def test_each_time_label_is_below_its_line_and_within_the_drawing() -> None:
    drawn = element(
        "svg", *time_axis([(2.0, "0 Jan"), (50.0, "1 Jan"), (99.0, "2 Jan")], 0, 9, 100)
    )
    lines = re.findall(r'<line x1="([\d.]+)"', drawn)
    first, second, last = map(float, re.findall(r'<text x="([\d.]+)"', drawn))
    assert lines == ["2", "50", "99"]
    assert 2 < first < second == 50 < last < 99


def test_colours_never_stand_alone() -> None:
    made = page()
    # A lane of marks has its cause beside it, an owner its letter.
    assert all(f"{cause}: " in timeline(made) for cause in ("Deploy", "Crash"))
    owners = ownership(made)
    assert set(re.findall(r'class="letter">(\w)<', owners)) == set("ABCDEF")
    assert '<b class="key owner-4">E</b> billing-4' in owners
    assert "no reader" in owners


def test_members_that_share_a_client_id_are_told_apart() -> None:
    def owned(owner: str, from_s: int, until_s: int | None, partition: int) -> dict[str, object]:
        return {
            "topic": "t",
            "partition": partition,
            "state": "owned",
            "owner": owner,
            "client_id": "app",
            "from_at_ms": BEGIN_MS + from_s * SECOND,
            "until_at_ms": None if until_s is None else BEGIN_MS + until_s * SECOND,
        }

    after = [owned("app-1", 0, 10, 0), owned("app-2", 10, 20, 0)]
    beside = [owned("app-1", 0, 20, 0), owned("app-2", 10, None, 1)]
    for times, told in ((after, {"app"}), (beside, {"app as app-1", "app as app-2"})):
        drawn = ownership(page(ownership=Ownership(times, BEGIN_MS, BEGIN_MS + 20_000, 2)))
        assert set(re.findall(r"</b> ([^<]+)</li>", drawn)) == told | {"no reader"}
