"""The figures that the README compares with Kafka's are those of the last measurement."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MEASURED = {
    "first answer after the start": "first answer (ApiVersions)",
    "memory, idle": "memory, idle",
    "memory after 500 MB produced and read": "memory after the load",
    "produce, records of 1 kB": "produce 1 kB",
    "fetch, records of 1 kB": "fetch 1 kB",
    "end to end, p50 at 1,000 records a second": "end to end, p50",
    "a broker in a test's own process, start to end": "a broker, from its start to its end",
}
"""Rows of the README, and the rows of docs/benchmarks.md that they are from."""


def cells(name: str, document: str) -> list[list[str]]:
    """The cells behind that name in each row that has it."""
    found = re.findall(
        rf"^\| {re.escape(name)} \|(.*)\|$", (ROOT / document).read_text(), re.MULTILINE
    )
    return [[cell.strip() for cell in row.split("|")] for row in found]


@pytest.mark.parametrize(("row", "measured"), MEASURED.items())
def test_a_figure_of_the_readme_is_one_that_was_measured(row: str, measured: str) -> None:
    (shown,) = cells(row, "README.md")
    rows = [
        [re.sub(r" \(.*", "", cell) for cell in one[:2]]
        for one in cells(measured, "docs/benchmarks.md")
    ]
    figures = [re.sub(r" .*|none", "", cell) for cell in shown]
    assert figures in rows
