"""The page by itself: what is in it, whatever the rows are."""

import re
from datetime import UTC, datetime
from functools import cache
from html.parser import HTMLParser

import pytest

from kohort.insight.advisor.text import TOO_FAR
from kohort.insight.report.answer import answer, numbered
from kohort.insight.report.contents import Contents, GroupPage, Listed
from kohort.insight.report.events import History
from kohort.insight.report.from_history import group_page
from kohort.insight.report.late_returns import enough, late_returns
from kohort.insight.report.markup import NBSP
from kohort.insight.report.page import render
from kohort.insight.report.text import column, days, duration, period, unit_of
from tests.unit.insight.report.pages import BEGIN_MS, advice, event, page, worked_out

PACKAGE = "org.apache.kafka.clients.consumer."


def html(*pages: GroupPage, others: Listed | None = None) -> str:
    contents = Contents(pages, others or Listed())
    return render(contents, "the lake x", datetime(2026, 1, 12, tzinfo=UTC))


@cache
def billing() -> str:
    """The page of the week's costliest group."""
    return html(page())


class _Text(HTMLParser):
    """The words of a page in their order, and how its elements nest."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        if tag not in {"meta", "br", "wbr"}:
            self.open.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)


def words(text: str) -> str:
    parser = _Text()
    parser.feed(text)
    assert not parser.open, "elements that are not closed"
    return "".join(parser.words).replace(NBSP, " ")


def test_the_first_screen_says_why_who_and_what_to_change() -> None:
    said = words(billing())
    first = said[: said.index("Quality of the advice, and other settings")]
    assert "Why billing rebalanced, and what to change" in first
    # The costliest causes, by their stopped time.
    places = [first.rindex(cause) for cause in ("Deploy, 10 times: 115", "Crash, 14 times: 25")]
    assert places == sorted(places)
    assert "Deploy, 10 times: 115 rebalances89 min, 82 %" in first
    assert "rarest" not in first
    assert "rarest; search-0; last Thu 8 Jan 12:00" in words(html(page("search")))
    # The newest first.
    newest = "Sun 11 Jan 07:09:23 Crash: billing-2; away for 4 min, 2 rebalances"
    assert "The last hour, until Sun 11 Jan 07:13 UTC" in first
    assert first.index(newest) < first.index("Crash: billing-4") < places[0]
    # By name.
    assert "billing-4: waited for in 114 of 141 rebalances (81 %)" in first
    assert (
        "24 min in all, each wait counted once; it joins 14 s after it is notified of a "
        "rebalance, the others 207 ms."
    ) in first
    assert "14 sessions expired, 4 of them of billing-5, after 10 s of silence." in first
    assert "16 partitions changed owners often: billing-events-4 108 times" in first
    # What to set, and what it would come to.
    assert (
        "Static membership and a cooperative assignor with a 30 s session is recommended; "
        "replayed: 1 h 48 min → 9 min stopped, 141 → 28 rebalances; a crash is noticed after "
        "8.5 s → 48 s"
    ) in first
    for title in ("Setting", "Rebalances, replayed", "Stopped", "No reader", "Crash noticed"):
        assert f">{title}</th>" in billing()
    assert "As recorded: eager assignor, 10 s session141108 min" in first
    assert "1. ★ Static membership and a cooperative assignor with a 30 s session288.7 min" in first
    assert "session.timeout.ms=30000" in first
    without = words(re.sub("<code>.*?</code>", "", billing(), flags=re.DOTALL))
    assert without.index("Quality of the advice, and other settings") < 2_900


def test_lines_to_paste_for_the_best_setting_come_first_and_those_of_others_below() -> None:
    text = billing()
    first, below = words(text).split("Quality of the advice, and other settings")
    assert "Java (properties)" in first
    assert "Lines to paste for 2: " in below
    assert "Lines to paste for 1: " not in first + below
    assert text.count('class="to-set"') == 1
    assert f"# partition.assignment.strategy={PACKAGE}CooperativeStickyAssignor" in first
    assert "what was not recorded" in below


def test_what_is_found_of_members_and_partitions_is_in_tables() -> None:
    said = words(billing())
    for title in (
        "Members that were waited for (6)",
        "How quickly members are notified (6)",
        "Partitions without a reader (72)",
        "Partitions that changed owners often (16)",
    ):
        assert title in said
    assert "The first 20 of 72 are shown." in said
    assert "Rebalances that moved nothing (2)" in words(html(page("search")))


def test_the_page_needs_nothing_beside_it() -> None:
    text = billing()
    assert "<script" not in text
    assert "@import" not in text
    assert "url(" not in text
    assert not re.findall(r"""(?:src|href)=["'](?!#)[^"']+["']""", text)


def test_each_link_within_the_page_leads_somewhere() -> None:
    text = html(page(), page("payments"))
    for target in re.findall(r'href="#([^"]+)"', text):
        assert text.count(f'id="{target}"') == 1


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "</style></svg></title><b>",
        "a\x00b\x1b[31m",
        "txt.\u202eexe\u2066",
        "\ud800 alone",
        "x" * 5_000,
        "{{ 7 * 7 }} & &lt;",
        "\n\r\t",
        "not\u00a0one word",
    ],
)
def test_names_are_shown_and_not_obeyed(name: str) -> None:
    events = [event(number, 5 * number, name) for number in (1, 2, 3)]
    for one in events:
        one["trigger"] |= {
            "client_id": name,
            "host": name,
            "reason_text": name,
            "instance_id": name,
        }
        one["members"][0] |= {"client_id": name, "host": name}
        one["protocol"] = one["leader"] = name
    text = html(group_page(History("g", events), advice()))
    parser = _Text()
    parser.feed(text)
    assert not {"script", "img"} & set(parser.names)
    assert not parser.open
    assert text.encode()
    assert name not in text or name.isprintable()
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", text)
    assert len(text) < 400_000


def test_a_group_of_which_next_to_nothing_is_known_has_a_page_too() -> None:
    bare = event(1, 0, stopped={}, waited_for={}, members=[], timeline={})
    said = words(html(group_page(History("g", [bare]))))
    assert "No advice was computed for this group." in said
    assert "The history shows no member that the others waited for." in said
    assert "1 rebalance, Mon 5 Jan 2026, 10:00:00 UTC; no stopped time is recorded" in said


def test_causes_without_stopped_times_are_compared_by_their_rebalances() -> None:
    kinds = ("session_expired", "member_added", "member_added")
    events = [
        event(number, number, f"{number}-{kind}", stopped={}, waited_for={}, members=[])
        for number, kind in enumerate(kinds, start=1)
    ]
    for one, kind in zip(events, kinds, strict=True):
        one["trigger"] |= {"kind": kind, "client_id": f"app-{one['sequence']}"}
    found = answer(group_page(History("g", events)))
    causes = [(cause.kind, cause.times, cause.rebalances) for cause in found.causes]
    assert causes == [("scale_out", 1, 2), ("crash", 1, 1)]
    # Of two that are equally rare the one that is not the costliest.
    assert found.rarest is found.causes[1]
    said = words(html(group_page(History("g", events))))
    assert "Why, by number of rebalances" in said


def test_a_cause_of_a_later_version_is_told_by_its_name() -> None:
    later = event(1, 0)
    later["trigger"]["kind"] = "moon_in_taurus"
    said = words(html(group_page(History("g", [later]))))
    assert "moon in taurus" in said
    assert "because of moon_in_taurus" in said


def test_several_groups_have_an_overview_that_answers_for_each() -> None:
    listed = Listed([{"group": "small", "rebalance_count": 2, "stopped_total_ms": 900}], 188)
    said = words(html(page(), page("search"), page("payments"), others=listed))
    first = said[: said.index("141 rebalances in")]
    assert "Why 191 groups rebalanced, and what to change" in first
    deploy = "Deploy, 10 times: billing-0, billing-1, billing-2 and 3 others; 115 of 141 rebalances"
    assert f"{deploy}, 82 % of the stopped time" in first
    assert "Times are UTC." in first
    assert "29 of 90 rebalances, 74 % of the stopped time" in first
    assert "Rarest: Topics changed, 2 times: search-0; last Thu 8 Jan 12:00" in first
    assert "billing-4, in 114 of 141" in first
    assert "1 h 48 min → 9 min stopped, 141 → 28 rebalances" in first
    assert "Groups with less stopped time (188)" in first
    assert "The first 1 of 188 are shown." in first


def test_a_long_history_makes_a_bounded_page_that_says_what_is_cut() -> None:
    events = [event(number, 30 * number, f"app-{number % 400}") for number in range(1, 1_201)]
    made = group_page(History("g", events), advice())
    text = html(made)
    assert "The 200 costliest of 1,200 rebalances are listed; 1,000 are omitted." in words(text)
    assert "Marks are of the 1,000 costliest of 1,200." in words(text)
    assert "24 of 400 partitions are drawn." in words(text)
    assert len(text) < 1_500_000


def test_settings_are_numbered_in_the_order_of_their_noticing() -> None:
    assert [row["ordinal"] for row in numbered(advice())] == [2, 3]
    text = billing()
    assert text.index("1. ") < text.index("2. ")


QUICKER = {
    **advice()[0],
    "ordinal": 4,
    "is_recorded": False,
    "is_on_front": True,
    "stopped_ms": 292_000,
    "quicker_member": "billing-4",
}
"""What one quick member would come to."""


def test_what_one_slow_member_costs_is_told_where_it_is_named() -> None:
    text = html(page(advice=[*advice(), QUICKER]))
    said = words(text)
    both = "they are independent; the combination was not replayed."
    assert (
        "If billing-4 were as quick as the others, replayed: 1 h 48 min → 5 min stopped. "
        f"Do both, this and ★: {both}"
    ) in said
    assert f"Do both: {both}" in said
    assert both not in words(billing())
    assert both not in words(
        html(page(advice=[*({**row, "is_best": False} for row in advice()), QUICKER]))
    )
    assert ">If billing-4 were as quick as the others</th>" in text
    assert "Lines to paste for 3" not in said
    several = words(html(page(advice=[*advice(), QUICKER]), page("search")))
    shortly = (
        "billing-4, in 114 of 141 rebalances; if it were as quick as the others, "
        "replayed: 1 h 48 min → 5 min stopped"
    )
    assert shortly in several


@pytest.mark.parametrize(
    ("stopped_s", "said"),
    [
        (
            118,
            "Do both, this and ★: together 1 h 48 min → 118 s stopped.",
        ),
        (
            510,
            "A quicker member adds little to the recommended setting: together 1 h 48 min → 8 min",
        ),
    ],
)
def test_a_quicker_member_and_the_best_setting_are_told_together(stopped_s: int, said: str) -> None:
    best = advice()[2] | {"is_best": False, "quicker_member": "billing-4", "ordinal": 5}
    rows = [*advice(), QUICKER, best | {"stopped_ms": 1_000 * stopped_s}]
    text = words(html(page(advice=rows)))
    assert said in text
    assert ("Do both" in text) == (stopped_s == 118)
    assert "the combination was not replayed" not in text
    assert "If billing-4 were as quick as the others, and ★" in text


@pytest.mark.long
def test_the_advisor_finds_a_quicker_member_and_the_best_setting_in_the_week() -> None:
    found = answer(page(advice=worked_out("billing")))
    assert found.both is not None
    assert found.quicker is not None
    assert found.best is not None
    assert found.both["session_timeout_ms"] == found.best["session_timeout_ms"]
    assert found.both["stopped_ms"] < found.best["stopped_ms"] < found.quicker["stopped_ms"]
    said_of_it = (
        "a cooperative assignor with a 30 s session, and billing-4 as quick as the others: "
    )
    assert said_of_it in found.both["text"]


def test_without_a_best_setting_none_is_called_so() -> None:
    rows = [{**row, "is_best": False} for row in advice()]
    found = answer(page(advice=rows))
    assert found.best is None
    assert "no setting is clearly better; 2 settings to compare" in words(html(page(advice=rows)))
    assert "Check: setting 0." in words(html(page(advice=rows)))
    # The table is there to weigh them, and nothing is open to be pasted.
    assert ">2. " in html(page(advice=rows))
    assert 'class="to-set"' not in html(page(advice=rows))
    alone = words(html(page(advice=rows[:1])))
    assert "Nothing that was tried would have been better" in alone
    assert "settings that were tried" not in alone
    why = "not ranked: 22 settings, since session.timeout.ms is not in the history"
    said = words(html(page(advice=[{**rows[0], "unranked": [why]}])))
    first = said[: said.index("Quality of the advice")]
    assert "Nothing that could be ranked would have been better" in first
    assert f"N{why[1:]}." in first


@pytest.mark.parametrize(
    ("ms", "said"),
    [
        (0, "0 s"),
        (900, "900 ms"),
        (3_200, "3.2 s"),
        (45_000, "45 s"),
        (300_000, "5 min"),
        (6_500_468, "1 h 48 min"),
        (7_200_000, "2 h"),
        (90_000_000, "1 d 1 h"),
        (544_405_057, "6 d 7 h"),
        (None, "-"),
    ],
)
def test_durations_are_told_as_people_do(ms: int | None, said: str) -> None:
    # A number and its unit are on one line.
    assert duration(ms) == said.replace(" ", NBSP)


@pytest.mark.parametrize(
    ("until_s", "said", "shortly"),
    [
        (0, "Mon 5 Jan 2026, 10:00:00", "Mon 5 Jan 2026, 10:00:00 UTC"),
        (270, "Mon 5 Jan 2026, 10:00:00 to 10:04:30", "Mon 5 Jan 2026, 10:00:00 to 10:04:30 UTC"),
        (
            86_400,
            "Mon 5 Jan 2026, 10:00:00 to Tue 6 Jan 2026, 10:00:00",
            "5 Jan to 6 Jan 2026",
        ),
        (
            365 * 86_400,
            "Mon 5 Jan 2026, 10:00:00 to Tue 5 Jan 2027, 10:00:00",
            "5 Jan 2026 to 5 Jan 2027",
        ),
    ],
)
def test_a_period_names_what_its_ends_do_not_share(until_s: int, said: str, shortly: str) -> None:
    ends = BEGIN_MS, BEGIN_MS + 1_000 * until_s
    assert period(*ends) == said
    assert days(*ends) == shortly


def test_the_lines_of_the_groups_own_clients_are_the_open_ones() -> None:
    rows = [row | {"libraries": ["aiokafka"]} for row in advice()]
    text = html(page(advice=rows))
    assert text.index("aiokafka (arguments)") < text.index("Java (properties)")


def test_a_small_screen_begins_with_the_answers_and_the_lines_to_paste() -> None:
    begin, end = billing().index('<div class="short"'), billing().index('<div class="answers"')
    short = billing()[begin:end]
    said = words(short)
    assert "Last hour: Crash (billing-2), Sun 11 Jan 07:09 UTC, and 1 earlier cause" in said
    assert "Why: Deploy, 10 times: billing-0, billing-1, billing-2 and 3 others; 115 of" in said
    assert "Java (properties):# 1. First rolling restart:" in said
    assert "session.timeout.ms=30000" in said
    assert 'href="#g1-change"' in short
    assert "<pre" not in html(page(advice=[]))


def test_lines_to_paste_break_only_between_their_parts() -> None:
    text = billing()
    assert (
        f"<span>partition.assignment.strategy=<wbr>{PACKAGE}<wbr>RangeAssignor,"
        f"<wbr>{PACKAGE}<wbr>CooperativeStickyAssignor\n</span>" in text
    )
    for code in re.findall(r"<code>(.*?)</code>", text, re.DOTALL):
        assert NBSP not in code


def test_settings_that_are_not_known_are_not_told_as_what_there_is() -> None:
    rows = advice()
    rows[0]["unknown"] = [
        "session.timeout.ms is not in the history; assumed to be 45 s",
        "whether members were eager or cooperative is not in the history",
    ]
    assert "As recorded: unknown141" in words(html(page(advice=rows)))
    rows[0] |= {"unknown": [], "static": True, "cooperative": True}
    said = words(html(page(advice=rows)))
    assert "As recorded: static members, cooperative assignor, 10 s session141" in said


def test_a_replay_that_does_not_fit_is_why_nothing_is_advised() -> None:
    rows = [{**row, "is_best": False} for row in advice()]
    rows[0]["text"] = f"check: 300 rebalances, the history 141; {TOO_FAR}"
    why = (
        "No recommendation, because the replay does not match the history; quality of this advice."
    )
    said = words(html(page(advice=rows)))
    assert why in said
    assert "No setting is clearly better" not in said
    assert "To change: no recommendation, because the replay does not match the history" in said
    alone = words(html(page(advice=rows[:1])))
    first = alone[: alone.index("Quality of")]
    assert "No recommendation, because the replay does not match the history." in first
    assert f"Check: 300 rebalances, the history 141; {TOO_FAR}." in first
    # Nor is it told what a member would come to that is as quick as the others.
    for text in (html(page(advice=[*rows, QUICKER])), html(page(advice=[*rows, QUICKER]), page())):
        assert "as quick as the others: " not in words(text)


def test_a_session_shorter_than_restarts_is_seen_without_a_replay() -> None:
    said = words(html(page("payments", advice=[])))
    assert (
        "session.timeout.ms=90000: 6 times a static member (payments-2) was back after its session "
        "of 30 s had expired, at most 41 s late." in said
    )
    assert (
        "To change: session.timeout.ms=90000, as static members came back up to 41 s too late"
    ) in said
    both = words(html(page("payments")))
    assert "up to 41 s too late; or static membership and a cooperative" in both
    assert "without a replay" not in words(billing())


def test_a_session_as_long_as_any_that_is_advised_is_not_to_be_longer() -> None:
    act = {
        "late_count": 2,
        "late_longest_ms": 5_000,
        "late_session_timeout_ms": 180_000,
        "processes": ["payments-2"],
    }
    late = late_returns([act])
    assert late is not None
    assert enough(late) == "session.timeout.ms=300000"
    assert late_returns([act | {"late_session_timeout_ms": 300_000}]) is None


def test_member_ids_are_shortened_to_what_tells_them_apart() -> None:
    random = "78c44ac0-4f29-4e9c-9558-fe0aff57fb72"
    long = event(1, 0, f"app-{random}")
    said = words(html(group_page(History("g", [long]))))
    assert "because member app-78c4" in said
    assert random not in said


@pytest.mark.parametrize(
    ("values_ms", "said"),
    [
        ([240_000, 92_000, 500], ["240 s", "92 s", "0.5 s"]),
        ([6_500_000, 541_000, 30, 0, None], ["108 min", "9.0 min", "< 0.1 min", "0 min", "-"]),
        ([850, 20], ["850 ms", "20 ms"]),
        ([90_000_000, 3_600_000], ["25 h", "1.0 h"]),
    ],
)
def test_a_column_has_one_unit(values_ms: list[int | None], said: list[str]) -> None:
    assert [text.replace(NBSP, " ") for text in column(values_ms)] == said


def test_a_spread_is_rounded_like_its_value() -> None:
    minutes = unit_of([6_000_000])
    assert minutes.text(1_440_000, 65_000) == f"24{NBSP}±{NBSP}1{NBSP}min"
    assert minutes.text(225_000, 29_100) == f"3.8{NBSP}±{NBSP}0.5{NBSP}min"
    assert minutes.text(1_440_000, 9_000) == f"24{NBSP}±{NBSP}1{NBSP}min"
