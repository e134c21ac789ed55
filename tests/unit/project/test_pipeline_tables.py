"""docs/pipeline-tables.md says what the schemas say, and the schemas what the history says."""

import dataclasses

import pytest

from kohort.groups.history import model
from kohort.insight.tables.columns import Table
from kohort.insight.tables.findings import FINDINGS
from kohort.insight.tables.history import HISTORY
from scripts import pipeline_tables

DOCUMENT = pipeline_tables.PATH.read_text(encoding="utf-8")
TABLES = [*HISTORY, *FINDINGS]


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


def test_members_of_the_model_are_columns_or_have_a_reason_not_to_be() -> None:
    columns = {column.name for table in HISTORY for column in table.columns}
    said = {field.name for field in dataclasses.fields(model.MemberTimeline)}
    assert said - columns == {"partitions", "reason_number"}
