"""The printed form of the figures."""

from collections.abc import Iterable, Iterator, Sequence

from benchmarks.harness import Figure, Row

HEADER = ("", "Kohort", "Kafka", "ratio", "aim", "unit")


def render(sections: Iterable[tuple[str, Sequence[Row]]]) -> str:
    """One table over all subjects, given as (title, rows)."""
    lines: list[tuple[str, ...]] = [HEADER]
    for title, rows in sections:
        lines.append((title,))
        lines.extend(_cells(row) for row in rows)
    widths = [
        max(len(line[column]) for line in lines if len(line) > column and len(line) > 1)
        for column in range(len(HEADER))
    ]
    return "\n".join(_lines(lines, widths))


def as_json(row: Row) -> dict[str, object]:
    """A row for machines."""
    return {
        "name": row.name,
        "unit": row.unit,
        "kohort": row.figures.kohort.values,
        "kafka": row.figures.kafka.values if row.figures.kafka else None,
        "ratio": row.ratio,
        "misses": row.misses,
    }


def _lines(lines: Iterable[tuple[str, ...]], widths: Sequence[int]) -> Iterator[str]:
    for cells in lines:
        if len(cells) == 1:
            yield f"\n{cells[0]}"
        else:
            padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
            yield "  ".join(padded).rstrip()


def _cells(row: Row) -> tuple[str, ...]:
    ratio = "" if row.ratio is None else f"{row.ratio:.2f}"
    return (
        f"  {row.name}",
        _figure(row.figures.kohort),
        _figure(row.figures.kafka) if row.figures.kafka else "",
        ratio,
        _aim(row),
        row.unit,
    )


def _aim(row: Row) -> str:
    sign = "<=" if row.better == "less" else ">="
    aims = []
    if row.limit is not None:
        aims.append(f"{sign} {_number(row.limit)} {row.unit}")
    if row.aim is not None:
        aims.append(f"{sign} {row.aim:g} x")
    missed = "  MISSED" if row.misses else ""
    return f"{', '.join(aims)}{missed}"


def _figure(figure: Figure) -> str:
    median = _number(figure.median)
    low, high = min(figure.values), max(figure.values)
    return median if low == high else f"{median} ({_number(low)} - {_number(high)})"


def _number(value: float) -> str:
    """Three digits that mean something, and no exponent."""
    if value and abs(value) < 0.1:
        return f"{value:.3g}"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
