"""Docstrings name what they are about: by a verb, or by a noun phrase."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = [
    *(f"kohort/{name}" for name in ("accelerated", "broker", "cli", "client", "pipeline")),
    *(f"kohort/{name}" for name in ("protocol", "testing", "wire")),
    "tests",
]

_ELLIPSIS = re.compile(r"\s*(?:Of|That of|Those|Whom?|As|None)\b")
"""Beginnings that leave out what is spoken of."""


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of the docstrings of a module, and of those below its names."""
    for node in ast.walk(ast.parse(path.read_text())):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                if isinstance(text, str):
                    yield statement.lineno, text


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_docstring_begins_with_what_it_is_about(folder: str) -> None:
    elliptic = [
        f"{path.relative_to(ROOT)}:{line}: {text.strip().splitlines()[0]}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in docstrings(path)
        if _ELLIPSIS.match(text)
    ]
    assert elliptic == []
