"""The acts found in recordings, compared with what was done: recorded runs with a known script,
groups that `kohort watch` followed, and the week of the examples.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kohort.groups.steps import at_once
from kohort.insight.advisor.trace import End
from kohort.insight.analysis.finder import compute_findings
from kohort.insight.analysis.group_acts import act_rows_steps
from kohort.insight.analysis.rows import as_row, read_histories
from kohort.insight.report.contents import Contents
from kohort.insight.report.events import History
from kohort.insight.report.first_screen import act_line
from kohort.insight.report.from_history import EVERYTHING, group_page
from kohort.insight.report.page import render
from kohort.insight.tables.findings import Act
from tests.interop.lives.life import Life, load
from tests.unit.insight.report.pages import WEEK, event, week
from tests.unit.watch.recorded import watch_lab

LIVES = Path(__file__).parent / "advisor"
FIRST = ["worker-0", "worker-1", "worker-2"]


def acts_of(records: Iterable[Mapping[str, Any]]) -> list[Act]:
    (history,) = read_histories("", records)
    found = compute_findings(history, EVERYTHING)["acts"]
    assert all(isinstance(act, Act) for act in found)
    acts: list[Act] = [*found]  # type: ignore[list-item]
    # Each rebalance is of one act.
    numbers = sorted(number for act in acts for number in act.sequences)
    assert numbers == [row.sequence for row in history.rebalances]
    for act in acts:
        assert all(act.first_sequence <= number <= act.last_sequence for number in act.sequences)
    return acts


def done(act: Act) -> tuple[str, list[str], int, int]:
    """Return each act, its processes, and its numbers of rebalances without second halves, and of
    avoided ones."""
    return (
        act.kind,
        act.processes,
        act.rebalance_count - act.second_half_count,
        act.avoided_count,
    )


@cache
def lives(library: str) -> list[Life]:
    return load(LIVES / f"lives-of-{library}.json.gz")


def script(life: Life) -> list[tuple[str, list[str], int, int]]:
    """Return the acts of `tests.interop.lives.life.script` that a broker can see."""
    way = life.way
    # It is away for 14 s.
    is_back_in_time = way.session_timeout_ms > 14_000
    deploy = ("deploy", FIRST, 0, 3) if way.static else ("deploy", FIRST, 6, 0)
    if way.static:
        # A static member does not say whether it stops or crashes.
        kill = (
            ("restart", FIRST[2:], 0, 1) if is_back_in_time else ("slow_restart", FIRST[2:], 2, 0)
        )
        stop = ("static_gone", ["worker-3"], 1, 0)
    else:
        kill = (
            ("crash", FIRST[2:], 1, 0) if is_back_in_time else ("crash_or_pause", FIRST[2:], 2, 0)
        )
        stop = ("scale_in", ["worker-3"], 1, 0)
    return [("start", FIRST, 1, 0), deploy, kill, ("scale_out", ["worker-3"], 1, 0), deploy, stop]


@pytest.mark.parametrize("library", ["librdkafka", "aiokafka", "java"])
def test_each_act_of_a_life_is_named_as_it_was(library: str) -> None:
    for life in lives(library):
        found = acts_of(life.records)
        assert [done(act) for act in found] == script(life), f"{life.group}: {life.way}"
        halves = sum(act.second_half_count for act in found)
        assert (halves > 0) == life.way.cooperative
        late = [act for act in found if act.late_count]
        assert [(act.kind, act.late_session_timeout_ms) for act in late] == [
            ("slow_restart", 10_000) for kind, *_ in script(life) if kind == "slow_restart"
        ]


@pytest.mark.parametrize("library", ["librdkafka", "aiokafka", "java"])
def test_each_act_of_a_life_is_on_the_page(library: str) -> None:
    for life in lives(library)[:5]:
        page = group_page(History(life.group, life.records))
        text = render(Contents([page]), "a recorded life").replace("\u00a0", " ")
        for act in acts_of(life.records):
            assert act_line(as_row(act)).replace("\u00a0", " ") in text
        # The second half of a cooperative rebalance is no cause.
        assert "ubscription or assignors" not in text


@cache
def lab() -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for record in watch_lab():
        groups.setdefault(record["group"], []).append(record)
    return groups


A, B, C = "A", "B", "C"
LAB: dict[str, list[tuple[str, list[str]]]] = {
    "classic-join": [("scale_out", [C])],
    "classic-kill": [("crash", [B])],
    "classic-coopkill": [("crash", [B])],
    "classic-jremain": [("crash", [B])],
    "classic-two": [("crash", [B]), ("scale_out", [C])],
    "classic-coop": [("scale_out", [C])],
    "classic-parts": [("topic_change", [A])],
    "classic-stopped": [("crash_or_pause", [B])],
    "classic-subs": [("subscription_change", [B])],
    "classic-slate": [("slow_restart", [B])],
    "classic-roll": [("scale_out", [C]), ("deploy", [A, B, C])],
    "classic-coopup": [("deploy", [A, B]), ("deploy", ["A.2", "B.2"])],
    "new-join": [("scale_out", [C])],
    "new-kill": [("crash", [B])],
    "new-parts": [("topic_change", [])],
    "new-tdel": [("topic_change", [])],
    "new-stopped": [("pause", [B])],
    "new-poll": [("pause", [B])],
    "new-subs": [("subscription_change", [B])],
    "new-slate": [("slow_restart", [B])],
    "new-roll": [("scale_out", [C]), ("deploy", [A, B, C])],
}
"""Acts of the watched groups between start and end, by the suffix of the group's name."""


@pytest.mark.parametrize("script", LAB)
def test_acts_of_watched_groups_are_named_as_they_were(script: str) -> None:
    groups = [name for name in lab() if name.partition("-")[2] == script]
    assert groups
    for group in groups:
        found = [
            (act.kind, [name.removeprefix(f"{group}-") for name in act.processes])
            for act in acts_of(lab()[group])
        ]
        start, *between = found
        assert start == ("start", [A, B])
        # In the end all members leave, or are killed.
        while between and between[-1][0] in {"scale_in", "static_gone"}:
            between.pop()
        # Acts at the same time are in no order.
        assert sorted(between, key=str) == sorted(LAB[script], key=str), group


@cache
def maker() -> ModuleType:
    """Import the program that made the week."""
    path = WEEK.with_name("make_week.py")
    spec = spec_from_file_location("make_week", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["make_week"] = module
    spec.loader.exec_module(module)
    return module


def names(acts: Iterable[Act], *kinds: str) -> Counter[str]:
    return Counter(name for act in acts if act.kind in kinds for name in act.processes)


def test_the_week_has_the_acts_that_it_was_made_of() -> None:
    trace, _ = maker().billing()
    crashes = Counter(
        slot.name for slot in trace.slots for run in slot.runs if run.end is End.SILENT
    )
    # On Wednesday it starts before the process ends that it replaces, which is silent from then on.
    crashes["billing-5"] += 1
    found = acts_of(week()["billing"])
    assert names(found, "crash") == crashes
    assert crashes.total() == 14
    everyone = [f"billing-{number}" for number in range(6)]
    assert [act.processes for act in found if act.kind == "deploy"] == [everyone] * 10
    assert Counter(act.kind for act in found) == {
        "start": 1,
        "deploy": 10,
        "crash": 14,
    }


def test_scaling_and_pauses_of_the_week_are_no_deploys() -> None:
    scaled = acts_of(week()["search"])
    more = Counter({f"search-{number}": 7 if number < 5 else 5 for number in range(3, 8)})
    assert names(scaled, "scale_out") == more
    assert names(scaled, "scale_in") == more
    assert Counter(act.kind for act in scaled)["topic_change"] == 2
    static = acts_of(week()["payments"])
    assert [done(act) for act in static if act.kind == "deploy"] == [
        ("deploy", [f"payments-{number}" for number in range(4)], 0, 4)
    ] * 2
    assert names(static, "pause") == {"payments-2": 6}


def history(*causes: tuple[float, str, str, dict[str, Any]]) -> list[Act]:
    """Return a history with these causes: seconds, kind, client id and further fields."""
    records = []
    for sequence, (at_s, kind, name, more) in enumerate(causes, start=1):
        record = event(sequence, at_s, members=[], waited_for={})
        fields = {"member_id": f"{name}-{sequence}", "client_id": name, **more}
        record["trigger"] |= {"kind": kind, "host": "/1", **fields}
        record |= {name: fields[name] for name in ("outcome", "follows") if name in fields}
        records.append(record)
    return acts_of(records)


def kinds(*causes: tuple[float, str, str, dict[str, Any]]) -> list[tuple[str, list[str]]]:
    return [(act.kind, act.processes) for act in history(*causes)]


def left(at_s: float, name: str, **more: Any) -> tuple[float, str, str, dict[str, Any]]:  # noqa: ANN401
    return at_s, "member_left", name, more


def came(at_s: float, name: str, **more: Any) -> tuple[float, str, str, dict[str, Any]]:  # noqa: ANN401
    return at_s, "member_added", name, more


def expired(at_s: float, name: str, **more: Any) -> tuple[float, str, str, dict[str, Any]]:  # noqa: ANN401
    return at_s, "session_expired", name, {"session_timeout_ms": 10_000, **more}


def test_a_process_that_comes_back_was_restarted_and_one_that_stays_away_was_not() -> None:
    assert kinds(left(0, "a"), came(5, "a")) == [("restart", ["a"])]
    assert kinds(left(0, "a"), came(700, "a")) == [("scale_in", ["a"]), ("scale_out", ["a"])]
    assert kinds(left(0, "a"), left(1, "b"), came(9, "a"), came(9, "b")) == [("deploy", ["a", "b"])]
    # One process again and again is no deploy.
    again = [left(0, "a"), came(5, "a"), left(20, "a"), came(25, "a")]
    assert kinds(*again) == [("restart", ["a"])] * 2
    late = [left(0, "a"), came(5, "a"), left(200, "b"), came(205, "b")]
    assert kinds(*late) == [("restart", ["a"]), ("restart", ["b"])]


def test_pods_under_new_names_are_a_deploy_if_there_are_several() -> None:
    rolled = [came(0, "x-2"), left(10, "x-1"), came(30, "y-2"), left(40, "y-1")]
    assert kinds(*rolled) == [("deploy", ["x-1", "y-1"])]
    assert kinds(*rolled[:2]) == [("scale_out", ["x-2"]), ("scale_in", ["x-1"])]
    # Two that come and go together are scaled out and in, and not replaced.
    scaled = [
        came(0, "x"),
        came(1, "y"),
        left(20, "x", member_id="x-1"),
        left(21, "y", member_id="y-2"),
    ]
    assert kinds(*scaled) == [("scale_out", ["x", "y"]), ("scale_in", ["x", "y"])]


def test_a_pause_is_the_same_process_and_a_crash_is_not() -> None:
    assert kinds(expired(0, "a")) == [("crash", ["a"])]
    assert kinds(expired(0, "a"), came(6, "a")) == [("crash_or_pause", ["a"])]
    assert kinds(expired(0, "a"), came(6, "a", reason="MEMBERSHIP_LOST")) == [("pause", ["a"])]
    # Consumers of the new protocol keep their ids.
    same = {"member_id": "id-1"}
    assert kinds(expired(0, "a", **same), came(6, "a", **same)) == [("pause", ["a"])]
    # A paused process cannot be back while its session lasts.
    assert kinds(came(0, "a"), expired(7, "a")) == [("crash", ["a"])]
    text = "consumer poll timeout has expired."
    assert kinds(left(0, "a", reason_text=text), came(9, "a")) == [("pause", ["a"])]
    assert kinds(left(0, "a", unfetched_ms=60_000), came(9, "a")) == [("pause", ["a"])]
    # It is not replaced by another one that comes meanwhile.
    stuck = left(0, "a", still_connected=True)
    assert kinds(stuck, came(2, "b")) == [("pause", ["a"]), ("scale_out", ["b"])]


def test_what_goes_and_comes_after_a_restart_of_the_broker_is_one_act() -> None:
    lost = event(1, 0, trigger={"kind": "session_expired", "member_id": "a-1", "client_id": "a"})
    after = event(2, 5, trigger={"kind": "member_added", "member_id": "b-2", "client_id": "b"})
    lost["further_causes"] = [
        {"kind": "session_expired", "member_id": "c-1", "client_id": "c", "after_ms": 9}
    ]
    acts = acts_of([lost | {"restart_ms": 6_000}, after])
    assert [(act.kind, act.processes) for act in acts] == [
        ("broker_restart", ["a", "c"]),
        ("scale_out", ["b"]),
    ]


def test_members_that_went_at_once_are_named_if_none_is_known_to_be_the_first() -> None:
    gone = event(1, 0, trigger={"kind": "session_expired", "member_id": None})
    gone["further_causes"] = [
        {"kind": "session_expired", "member_id": f"{name}-1", "client_id": name, "after_ms": 0}
        for name in ("a", "b")
    ]
    acts = acts_of([gone])
    assert [(act.processes, act.rebalance_count) for act in acts] == [(["a"], 1), (["b"], 0)]


def test_a_static_member_does_not_say_why_it_went() -> None:
    static = {"instance_id": "i"}
    (act,) = history(expired(0, "a", **static), (2.5, "static_added", "a", static))
    assert (act.kind, act.processes) == ("slow_restart", ["i"])
    assert (act.late_count, act.late_longest_ms, act.away_longest_ms) == (1, 2_500, 12_500)
    assert kinds(expired(0, "a", **static)) == [("static_gone", ["i"])]


def test_other_causes_have_their_own_names() -> None:
    rejoined = "protocols_changed"
    for more, kind in (
        ({"reason": "TOPIC_METADATA_CHANGE"}, "topic_change"),
        ({"grown_topics": ["t"]}, "topic_change"),
        ({"reason": "ENFORCED"}, "enforced"),
        ({}, "subscription_change"),
    ):
        assert kinds((0, rejoined, "a", more)) == [(kind, ["a"])]
    assert kinds((0, "topics_changed", "a", {"member_id": None})) == [("topic_change", [])]
    assert kinds((0, "sync_expired", "a", {})) == [("too_slow", ["a"])]
    assert kinds((0, "removed_by_admin", "a", {})) == [("removed", ["a"])]
    stopped = left(0, "a", outcome="unfinished")
    assert kinds(stopped, (9, "leader_rejoined", "b", {})) == [
        ("scale_in", ["a"]),
        ("broker_restart", ["b"]),
    ]


def test_a_second_half_belongs_to_the_first() -> None:
    for second in ({"follows": 1}, {"reason": "PARTITIONS_REVOKED"}):
        (act,) = history(came(0, "a"), (2, "protocols_changed", "b", second))
        assert (act.kind, act.processes) == ("scale_out", ["a"])
        assert (act.rebalance_count, act.second_half_count) == (2, 1)
    # One that supersedes another has its own cause.
    assert kinds(came(0, "a"), left(2, "b", follows=1)) == [
        ("scale_out", ["a"]),
        ("scale_in", ["b"]),
    ]


def test_processes_that_share_a_client_id_have_characters_of_their_member_ids() -> None:
    members = [
        {"member_id": f"app-{number}f00c0de-1", "client_id": "app", "fate": fate}
        for number, fate in enumerate(("left", "kept", "kept"))
    ]
    first = event(1, 0, members=members)
    first["trigger"] |= {"kind": "member_left", "member_id": members[0]["member_id"]}
    assert [act.processes for act in acts_of([first])] == [["app-0f00c0de"]]


def test_what_nobody_read_counts_as_stopped_and_a_group_without_members_is_said_to_be() -> None:
    gone: dict[str, Any] = {"stopped": {"longest_ms": 20}, "unread": {"longest_ms": 6_000}}
    records = [event(number, 2 * number, members=[], **gone) for number in (1, 2)]
    for record, name in zip(records, "ab", strict=True):
        record["trigger"] |= {"kind": "member_left", "member_id": name, "client_id": name}
    (act,) = at_once(act_rows_steps("g", records))
    assert act["text"].endswith("; processing stopped for up to 6 s")

    for record in records:
        record["restart_ms"] = 1
    (act,) = at_once(act_rows_steps("g", records))
    assert act["text"].endswith("; processing stopped for at least 6 s")

    records[-1] |= {"outcome": "empty"}
    (act,) = at_once(act_rows_steps("g", records))
    assert act["text"].endswith("; no member is left")
