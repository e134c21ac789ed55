"""The tables of docs/pipeline-tables.md, made from their declarations."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from kohort.insight.tables.advice import ADVICE
from kohort.insight.tables.columns import Column, ListOf, Struct, Table, Type
from kohort.insight.tables.findings import FINDINGS
from kohort.insight.tables.history import HISTORY, REBALANCES

ROOT: Final = Path(__file__).parents[1]
PATH: Final = ROOT / "docs" / "pipeline-tables.md"
TRIGGER: Final = "trigger_"
STRING: Final = "string"
WHOLE_NUMBERS: Final = ("_ms", "_count")
"""Endings of names whose type, bigint, the document states once."""
USUAL_KEY: Final = ("cluster_id", "group")
"""The beginning of most keys, which the document states once."""
MARKS: Final = {
    name: (f"<!-- {name}: made by `make docs` -->\n", f"<!-- end of {name} -->\n")
    for name in ("history", "findings", "advice")
}


def renew(text: str) -> str:
    """The document with its tables as the schemas have them now."""
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
    own = table.key[2:] if table.key[:2] == USUAL_KEY else table.key
    key = f" Key: {', '.join(f'`{name}`' for name in own)}." if own else ""
    yield f"### {table.name}\n\n{table.meaning}{key}\n"
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
            kind = "" if column.name.endswith(WHOLE_NUMBERS) else _type(column.type)
            yield f"| `{column.name}`{kind} | {column.meaning} |"
    yield ""


def _named(names: list[str], known: Iterable[Column]) -> Iterator[str]:
    """The names for a sentence; all columns about the trigger are named together."""
    triggers = [column.name for column in known if column.name.startswith(TRIGGER)]
    together = set(triggers) if set(triggers) <= set(names) else set()
    if together:
        yield f"all columns `{TRIGGER}...`"
    yield from (f"`{name}`" for name in names if name not in together)


def _type(kind: Type) -> str:
    """What follows the name: nothing for a string, otherwise the type in SQL, without the fields of
    structs, which the meaning describes.
    """
    if isinstance(kind, ListOf):
        return f" array of {_type(kind.of).lstrip() or STRING}"
    name = "struct" if isinstance(kind, Struct) else kind
    return "" if name == STRING else f" {name}"
