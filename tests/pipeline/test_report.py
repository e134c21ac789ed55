"""A lake and its history make the same page, row for row."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kohort.insight.report.contents import GroupPage, Listed, Ownership, Row
from kohort.insight.report.events import History
from kohort.insight.report.from_history import group_page
from tests.pipeline.conftest import Pipeline
from tests.pipeline.events import CLUSTER, take
from tests.pipeline.events import records as as_records
from tests.unit.insight.report.pages import week

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kohort.pipeline.delta.lake import DeltaLake


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DeltaLake:
    """The recorded week, with its findings."""
    from kohort.pipeline.delta.lake import DeltaLake  # noqa: PLC0415
    from kohort.pipeline.rebalances.findings import Findings, Thresholds  # noqa: PLC0415

    made = DeltaLake(spark, str(tmp_path_factory.mktemp("lake")))
    take(made, as_records(json.dumps(record).encode() for of in week().values() for record in of))
    Findings(made, Thresholds()).renew()
    return made


@pytest.mark.long
def test_a_lake_and_its_history_make_the_same_page(lake: DeltaLake) -> None:
    from kohort.pipeline.rebalances.pages import collect  # noqa: PLC0415

    told: list[str] = []
    pages = {page.group: page for page in collect(lake, [], told.append).groups}
    assert list(pages) == ["billing", "search", "payments"]
    for group, records in week().items():
        expected = group_page(History(group, records), cluster_id=CLUSTER)
        for field in fields(GroupPage):
            # Fewer rebalances are told of each of several groups.
            if field.name not in {"told", "marks"}:
                here, there = (_rows(getattr(one, field.name)) for one in (pages[group], expected))
                assert _same(here, there), (group, field.name)
    assert told[1:] == ["group billing, 1 of 3", "group search, 2 of 3", "group payments, 3 of 3"]


@pytest.mark.long
def test_a_page_of_a_lake_is_written(pipeline: Pipeline, lake: DeltaLake, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    assert pipeline("report", "--lake", lake.root, "--output", output, "--group", "search") == 0
    text = output.read_text(encoding="utf-8")
    assert "Why search rebalanced, and what to change" in text
    assert "billing" not in text
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def _rows(value: Any) -> tuple[list[Row], Any]:  # noqa: ANN401 - any field of a page.
    if isinstance(value, Listed):
        return list(value.rows), value.total
    if isinstance(value, Ownership):
        rest = (value.from_at_ms, value.until_at_ms, value.partitions, value.about)
        return list(value.times), rest
    if isinstance(value, dict):
        return [value], None
    return (list(value), None) if isinstance(value, (list, tuple)) else ([], value)


def _same(here: tuple[list[Row], Any], there: tuple[list[Row], Any]) -> bool:
    """The same rows, as far as both have the columns; the plain ones have what the page needs."""
    (rows, rest), (expected, expected_rest) = here, there
    assert len(rows) == len(expected), (len(rows), len(expected))
    for row, plain in zip(rows, expected, strict=True):
        both = set(row) & set(plain) - {"event"}
        assert both
        differing = {name: (row[name], plain[name]) for name in both if row[name] != plain[name]}
        assert not differing, differing
    assert rest == expected_rest
    return True
