"""The figures of the benchmarks, and how they are printed."""

from pathlib import Path

import pytest

from benchmarks.harness import Bench, Figure, Pair, Row
from benchmarks.table import as_json, render


def figure(*values: float) -> Figure:
    return Figure(values)


@pytest.mark.parametrize(
    ("row", "misses"),
    [
        (Row("time", "ms", Pair(figure(10), figure(100)), aim=0.1), False),
        (Row("time", "ms", Pair(figure(11), figure(100)), aim=0.1), True),
        (Row("time", "ms", Pair(figure(401)), limit=400), True),
        (Row("rate", "1/s", Pair(figure(99), figure(100)), better="more", aim=1.0), True),
        (Row("rate", "1/s", Pair(figure(101), figure(100)), better="more", aim=1.0), False),
        (Row("rate", "1/s", Pair(figure(9)), better="more", limit=10), True),
    ],
)
def test_a_row_misses_what_it_falls_short_of(row: Row, misses: bool) -> None:
    assert row.misses is misses
    assert ("MISSED" in render([("Title", [row])])) is misses


def test_the_table_has_a_line_for_each_row_with_extremes_ratio_aim_and_unit() -> None:
    rows = [
        Row("first answer", "ms", Pair(figure(210, 200, 230), figure(3000, 2900, 3100)), aim=0.1),
        Row("scrape", "MiB", Pair(figure(50.25))),
    ]
    lines = [" ".join(line.split()) for line in render([("Start", rows)]).splitlines()]
    assert list(filter(None, lines)) == [
        "Kohort Kafka ratio aim unit",
        "Start",
        "first answer 210 (200 - 230) 3,000 (2,900 - 3,100) 0.07 <= 0.1 x ms",
        "scrape 50.2 MiB",
    ]


def test_runs_of_ours_are_counted(tmp_path: Path) -> None:
    runs = iter([1.0, 2.0, 3.0])
    bench = Bench(3, tmp_path, [])
    assert bench.measure_ours(lambda: {"a": next(runs)}) == {"a": Pair(figure(1, 2, 3))}


def test_a_row_for_machines_has_every_value() -> None:
    row = Row("start", "ms", Pair(figure(1, 2), figure(4)), aim=0.1)
    assert as_json(row) == {
        "name": "start", "unit": "ms", "kohort": (1, 2), "kafka": (4,), "ratio": 0.375,
        "misses": True,
    }  # fmt: skip
