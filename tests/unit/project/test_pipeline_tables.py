"""docs/pipeline-tables.md says what the schemas say, and the schemas what the history says."""

import dataclasses
from typing import Any

import pytest

from kohort.groups.events import Certainty, Evidence, TriggerKind
from kohort.groups.history import model
from kohort.groups.history.json_form import as_json
from kohort.insight.event_rows import SCHEMA_VERSION
from kohort.insight.tables.columns import ListOf, Struct, Table
from kohort.insight.tables.event import EVENT
from kohort.insight.tables.findings import FINDINGS
from kohort.insight.tables.history import HISTORY
from scripts import pipeline_tables

DOCUMENT = pipeline_tables.PATH.read_text(encoding="utf-8")
TABLES = [*HISTORY, *FINDINGS]

OF_WATCHED = {
    "cluster": "c",
    "observed": {"by": ["records"], "partition": 0, "offset": 1},
    "started_between_ms": [1, 2],
    "coordinator_changed_ms": None,
}
OF_WATCHED_MEMBERS = {"candidates": [], "evidence": [{"kind": "poll", "ms": 1}]}
"""Fields that only `kohort watch` writes."""


def test_the_document_is_what_the_schemas_make() -> None:
    assert pipeline_tables.renew(DOCUMENT) == DOCUMENT


def test_a_document_that_differs_is_mended() -> None:
    changed = DOCUMENT.replace("| Group id. |", "| Who knows. |")
    assert changed != DOCUMENT
    assert pipeline_tables.renew(changed) == DOCUMENT


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_table_has_a_key_and_each_column_once_with_a_meaning(table: Table) -> None:
    assert len(set(table.names)) == len(table.names)
    assert set(table.key) <= set(table.names)
    assert all(column.meaning.strip() for column in table.columns)


def test_the_schema_of_events_has_the_fields_of_the_history() -> None:
    trigger = model.TriggerRecord(
        kind=TriggerKind.MEMBER_ADDED, at_ms=1, after_ms=1, evidence=(Evidence("poll", 1),)
    )
    rebalance = model.RebalanceRecord(
        group="g",
        sequence=1,
        previous_generation=0,
        previous_state="Empty",
        started_at_ms=1,
        trigger=trigger,
        further_causes=(trigger,),
        members=(model.MemberTimeline(member_id="a", certainty=Certainty.LIKELY),),
        outcome=model.RebalanceOutcome.STABLE,
    )
    avoided = model.AvoidedRecord(group="g", sequence=2, generation=1, at_ms=1, trigger=trigger)
    written = as_json(rebalance) | as_json(avoided) | OF_WATCHED
    written["members"][0] |= OF_WATCHED_MEMBERS
    assert fields(EVENT) == names(written)
    assert SCHEMA_VERSION == model.SCHEMA


def names(value: dict[str, Any]) -> dict[str, Any]:
    """Names within names, of an event."""
    return {
        name: names(item)
        if isinstance(item, dict)
        else names(item[0])
        if isinstance(item, list) and item and isinstance(item[0], dict)
        else None
        for name, item in value.items()
    }


def fields(schema: Struct) -> dict[str, Any]:
    """Names within names, of a schema."""
    found: dict[str, Any] = {}
    for name, kind in schema.fields:
        inner = kind.of if isinstance(kind, ListOf) else kind
        found[name] = fields(inner) if isinstance(inner, Struct) else None
    return found


def test_members_of_the_model_are_columns_or_have_a_reason_not_to_be() -> None:
    columns = {column.name for table in HISTORY for column in table.columns}
    said = {field.name for field in dataclasses.fields(model.MemberTimeline)}
    assert said - columns == {"partitions", "reason_number"}
