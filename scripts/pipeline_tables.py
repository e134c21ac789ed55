"""The tables of docs/pipeline-tables.md, made from the schemas that the pipeline declares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from kohort.pipeline.schemas import Column, Table

ROOT: Final = Path(__file__).parents[1]
PATH: Final = ROOT / "docs" / "pipeline-tables.md"
TRIGGER: Final = "trigger_"
STRING: Final = "string"
MARKS: Final = {
    name: (f"<!-- {name}: made by `make docs` -->\n", f"<!-- end of {name} -->\n")
    for name in ("history", "findings", "advice")
}


def renew(text: str) -> str:
    """The document with its tables as the schemas have them now."""
    from kohort.pipeline.schemas import FINDINGS, HISTORY  # noqa: PLC0415 - Spark's types take a second.
    from kohort.pipeline.schemas.advice import ADVICE  # noqa: PLC0415 - as above.

    for name, tables in (("history", HISTORY), ("findings", FINDINGS), ("advice", (ADVICE,))):
        begin, end = MARKS[name]
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}{document(tables)}{end}{after}"
    return text


def document(tables: Iterable[Table]) -> str:
    """A chapter for each."""
    return "\n".join(line for table in tables for line in _chapter(table))


def _chapter(table: Table) -> Iterator[str]:
    from kohort.pipeline.schemas import REBALANCES  # noqa: PLC0415 - as in `renew`.

    key = ", ".join(f"`{name}`" for name in table.key)
    yield f"### {table.name}\n\n{table.meaning} Key: {key}.\n"
    known = () if table is REBALANCES else REBALANCES.columns
    repeated = [column.name for column in table.columns if column in known]
    named = list(_named([name for name in repeated if name not in table.key], known))
    if named:
        yield f"As in [rebalances](#rebalances): {', '.join(named)}.\n"
    if len(repeated) == len(table.columns):
        return
    yield "| Column | Meaning |\n|---|---|"
    for column in table.columns:
        if column not in known:
            yield f"| `{column.name}`{_type(column.type)} | {column.meaning} |"
    yield ""


def _named(names: list[str], known: Iterable[Column]) -> Iterator[str]:
    """The names for a sentence; all columns about the trigger are named together."""
    triggers = [column.name for column in known if column.name.startswith(TRIGGER)]
    together = set(triggers) if set(triggers) <= set(names) else set()
    if together:
        yield f"all columns `{TRIGGER}...`"
    yield from (f"`{name}`" for name in names if name not in together)


def _type(kind: DataType) -> str:
    """What follows the name: nothing for a string, otherwise the type in SQL, without the fields of
    structs, which the meaning describes.
    """
    name = kind.simpleString().split("<")[0]
    if name == "array":
        name = f"array of {_type(kind.elementType).lstrip() or STRING}"  # type: ignore[attr-defined]
    return "" if name == STRING else f" {name}"
