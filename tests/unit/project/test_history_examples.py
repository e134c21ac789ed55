"""docs/rebalance-history.md says what the code does."""

import dataclasses
import re

import pytest

from kohort.groups.events import TriggerKind
from kohort.groups.history import model
from scripts import history_examples

DOCUMENT = history_examples.PATH.read_text(encoding="utf-8")


def test_the_examples_are_what_the_code_makes() -> None:
    assert history_examples.renew(DOCUMENT) == DOCUMENT


def test_other_words_for_a_record_are_replaced() -> None:
    changed = DOCUMENT.replace("missed its session timeout", "had bad luck")
    assert changed != DOCUMENT
    assert history_examples.renew(changed) == DOCUMENT


@pytest.mark.parametrize(
    "described",
    [
        model.RebalanceRecord,
        model.AvoidedRecord,
        model.AssignedRecord,
        model.MemberChange,
        model.TriggerRecord,
        model.Timeline,
        model.WaitedFor,
        model.PartitionCounts,
        model.Stopped,
        model.MemberTimeline,
        model.MemberPartitions,
    ],
)
def test_every_field_is_explained(described: type) -> None:
    words = set(re.findall(r"`(?:\w+\.)?(\w+)`", DOCUMENT))
    names = {field.name for field in dataclasses.fields(described)}
    assert names <= words


@pytest.mark.parametrize(
    "names", [TriggerKind, model.RebalanceOutcome, model.MemberFate, model.LeaderChange]
)
def test_every_name_that_a_field_can_hold_is_explained(names: type) -> None:
    assert {one.value for one in names} <= set(re.findall(r"`(\w+)`", DOCUMENT))  # type: ignore[attr-defined]
