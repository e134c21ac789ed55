"""Each measurement in its smallest form, so that it still works when somebody wants its figures."""

import math
from pathlib import Path

import pytest

from benchmarks import (
    connections,
    groups,
    latency,
    partitions,
    rpc,
    security,
    testing,
    throughput,
    transactions,
    walks,
)
from benchmarks.brokers import Kohort
from benchmarks.generator import generate
from benchmarks.harness import Bench, Subject
from benchmarks.table import render


@pytest.mark.parametrize(
    ("subject", "rows"),
    [
        (rpc, 18),
        pytest.param(throughput, 13, marks=pytest.mark.long),
        pytest.param(latency, 3, marks=pytest.mark.long),
        pytest.param(groups, 18, marks=pytest.mark.long),
        pytest.param(connections, 3, marks=pytest.mark.long),
        pytest.param(partitions, 6, marks=pytest.mark.long),
        pytest.param(walks, 12, marks=pytest.mark.long),
        pytest.param(security, 29, marks=pytest.mark.long),
        pytest.param(testing, 6, marks=pytest.mark.long),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_measurement_still_works_and_checks_its_answers(
    subject: Subject, rows: int, tmp_path: Path
) -> None:
    bench = Bench(runs=1, directory=tmp_path, contenders=[Kohort()], scale=0.002)
    found = list(subject.measure(bench))
    assert len(found) == rows
    assert all(math.isfinite(row.figures.kohort.median) for row in found)
    assert subject.TITLE in render([(subject.TITLE, found)])


@pytest.mark.parametrize(
    ("part", "rows"),
    [
        ("TV1 with offsets", 4),
        pytest.param("", 58, marks=pytest.mark.long),
    ],
)
def test_transactions_are_measured_part_by_part(part: str, rows: int, tmp_path: Path) -> None:
    bench = Bench(1, tmp_path, [Kohort()], scale=0.002, only=part)
    found = list(transactions.measure(bench))
    assert len(found) == rows
    assert all(math.isfinite(row.figures.kohort.median) for row in found)


def test_what_rules_and_limits_cost_is_measured(tmp_path: Path) -> None:
    found = list(security.measure(Bench(1, tmp_path, [Kohort()], scale=0.002, only="costs")))
    assert len(found) == 25
    assert all(math.isfinite(row.figures.kohort.median) for row in found)


def test_a_load_that_gets_no_answer_is_an_error_and_not_a_figure() -> None:
    with pytest.raises(RuntimeError, match="Connection refused"):
        generate("idle", port=1, pid=1, connections=1, settle_s=0.0)
