"""The public schema: what is written can be read, by this version and by later ones."""

import json
from typing import Any

import pytest

from kohort.groups.events import TriggerKind
from kohort.groups.history.json_form import as_json, from_json, parse_text, text_steps
from kohort.groups.history.model import (
    AvoidedRecord,
    MemberTimeline,
    RebalanceOutcome,
    RebalanceRecord,
    TriggerRecord,
)
from kohort.groups.steps import SOME, at_once

TRIGGER = TriggerRecord(kind=TriggerKind.MEMBER_LEFT, at_ms=5, removed=("a",), removed_count=1)
AVOIDED = AvoidedRecord(group="g", sequence=2, generation=3, at_ms=5, trigger=TRIGGER)
RECORD = RebalanceRecord(
    group="g\ud800",
    sequence=1,
    previous_generation=0,
    previous_state="Stable",
    started_at_ms=1,
    trigger=TRIGGER,
    outcome=RebalanceOutcome.STABLE,
    members=tuple(MemberTimeline(member_id=f"m{number}") for number in range(250)),
)


def test_a_text_says_the_same_as_the_record() -> None:
    for record in (RECORD, AVOIDED):
        text = at_once(text_steps(record))
        assert json.loads(text) == json.loads(json.dumps(as_json(record)))
        assert b"\n" not in text
        assert parse_text(text) == record


def test_large_records_are_written_in_steps() -> None:
    # The fields of the record, their text, and some members each time.
    assert len(list(text_steps(RECORD))) == 2 + -(-len(RECORD.members) // SOME)


def test_only_further_causes_say_after_how_long_they_came() -> None:
    assert "after_ms" not in as_json(AVOIDED)["trigger"]


def test_fields_of_later_versions_are_skipped_and_missing_ones_have_their_default() -> None:
    data: dict[str, Any] = as_json(RECORD)
    data["from_the_future"] = {"x": 1}
    data["trigger"]["colour"] = "red"
    del data["further_causes_dropped"]
    del data["stopped"]
    assert from_json(data) == RECORD


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"schema": 2, "kind": "rebalance"},
        {"schema": 1, "kind": "party"},
        {"schema": 1, "kind": "rebalance"},
        {"schema": 1, "kind": "avoided", "group": "g", "trigger": 5},
        as_json(AVOIDED) | {"trigger": {"kind": "unheard_of", "at_ms": 1}},
        as_json(RECORD) | {"members": [5]},
        as_json(RECORD) | {"group": {"a": 1}},
        as_json(RECORD) | {"members": {"a": {}}},
    ],
)
def test_what_is_not_a_record_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        from_json(bad)


@pytest.mark.parametrize("bad", [b"", b"[]", b"{", b"5", b"\xff\xfe"])
def test_what_is_not_json_is_refused(bad: bytes) -> None:
    with pytest.raises(ValueError):
        parse_text(bad)
