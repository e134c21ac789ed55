"""A watcher's conclusions about a recorded lab, against the log of its broker."""

from collections import Counter
from typing import Any

import pytest

from tests.unit.watch.recorded import Json, causes, how_it_went, reasons, watch_lab

FORMS: dict[str, dict[str, Any]] = {
    "polls": {"polls": True},
    "afterwards": {},
    "without-commits": {"dump": "dump-nocommit", "polls": True},
}

Score = Counter[tuple[str, bool]]
"""How many conclusions of each certainty are right, and wrong."""


def score_fates(history: list[Json]) -> Score:
    """Compare how members went. To be removed by an administrator is to leave, too."""
    score: Score = Counter()
    for record in history:
        for member in record.get("members", ()):
            if "certainty" in member:
                at_ms = record["started_at_ms"] + (member["fate_ms"] or 0)
                truth = how_it_went(record["group"], member["member_id"], at_ms)
                if truth is not None:
                    score[member["certainty"], truth == member["fate"]] += 1
    return score


def score_causes(history: list[Json]) -> Score:
    """Compare what began the rebalances of classic groups."""
    score: Score = Counter()
    for record in history:
        if record.get("group_type") == "classic":
            truth = causes().get((record["group"], record["previous_generation"]))
            if truth not in {None, "unknown"}:
                trigger = record["trigger"]
                score[trigger["certainty"], truth == trigger["kind"]] += 1
    return score


@pytest.mark.parametrize("form", FORMS)
def test_what_is_certain_is_right_and_what_is_likely_nearly_always(form: str) -> None:
    history = watch_lab(**FORMS[form])
    for score in (score_fates(history), score_causes(history)):
        assert not score["certain", False]
        assert score["likely", False] <= 0.03 * (score["likely", True] + score["likely", False])


@pytest.mark.parametrize("form", FORMS)
def test_the_member_that_began_a_rebalance_is_the_right_one(form: str) -> None:
    for record in watch_lab(**FORMS[form]):
        trigger = record["trigger"]
        if record.get("group_type") != "classic" or trigger["certainty"] != "certain":
            continue
        reason = reasons().get((record["group"], record["previous_generation"]))
        if reason is not None and trigger["member_id"] and trigger["kind"] != "downgraded":
            assert trigger["member_id"] in reason


def test_with_polls_hardly_a_departure_is_unclear() -> None:
    score = score_fates(watch_lab(polls=True))
    assert score["certain", True] >= 84
    assert score["likely", True] >= 28
    assert score["unclear", True] + score["unclear", False] <= 8


def test_afterwards_most_causes_are_known() -> None:
    history = watch_lab()
    fates, triggers = score_fates(history), score_causes(history)
    assert fates["certain", True] + fates["likely", True] >= 0.9 * fates.total()
    assert triggers["certain", True] + triggers["likely", True] >= 0.75 * triggers.total()


def test_without_commits_nothing_is_claimed_of_members_that_stayed_longer_than_a_session() -> None:
    history = watch_lab(dump="dump-nocommit", polls=True)
    for record in history:
        for member in record.get("members", ()):
            is_certain = member.get("certainty") == "certain"
            assert not is_certain or member["fate"] == "left" or member["instance_id"]


def test_consumer_groups_are_followed_through_upgrades_and_restarts() -> None:
    history = watch_lab()
    kinds = {
        (record["group"], record["trigger"]["kind"])
        for record in history
        if record["group"].startswith("ck-")
    }
    assert {
        ("ck-classic-upgrade", "upgraded"),
        ("ck-classic-upgrade", "downgraded"),
        ("ck-new-subs", "subscription_changed"),
        ("ck-new-parts", "topics_changed"),
        ("ck-new-tdel", "topics_changed"),
        ("ck-new-srest", "static_replaced"),
        ("ck-new-stopped", "session_expired"),
        ("ck-new-leave", "member_left"),
    } <= kinds


def test_who_holds_a_consumer_group_back_is_exact() -> None:
    """B joins, A gives up half of its partitions, and B gets them."""
    record = next(
        record
        for record in watch_lab()
        if record["group"] == "ck-new-leave" and record["trigger"]["client_id"] == "ck-new-leave-B"
    )
    first, second = sorted(record["members"], key=lambda member: member["client_id"])
    assert record["outcome"] == "stable"
    assert [len(first["partitions"]["given_up"]), len(second["partitions"]["gained"])] == [2, 2]
    assert 0 < first["told_ms"] <= first["revoked_ms"] <= second["completed_ms"]
    assert second["stopped_ms"] == second["completed_ms"] - first["revoked_ms"]


def test_every_departure_has_a_certainty() -> None:
    for record in watch_lab():
        for member in record.get("members", ()):
            is_gone = member["fate"] not in {"kept", "new", "replaced"}
            assert ("certainty" in member) == is_gone


def test_members_have_the_timeouts_and_modes_of_their_joins() -> None:
    modes = set()
    for record in watch_lab():
        for member in record.get("members", ()):
            if record["group_type"] == "classic" and member["fate"] != "replaced":
                assert member["session_timeout_ms"] == 10_000
                modes.add((record["group"], member["mode"]))
    assert ("ck-classic-coop", "cooperative") in modes
    assert ("ck-classic-join", "eager") in modes
    assert ("ck-classic-join", "cooperative") not in modes


def test_if_the_beginning_is_a_guess_nothing_is_counted_from_it() -> None:
    guessed = [record for record in watch_lab() if record.get("started_between_ms")]
    assert guessed
    for record in guessed:
        lowest, highest = record["started_between_ms"]
        assert lowest <= record["started_at_ms"] <= highest
        assert record["timeline"]["join_phase_ms"] is None
