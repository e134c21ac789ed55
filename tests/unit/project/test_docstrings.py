"""Docstrings, comments and documents are in plain English."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = [
    *(f"kohort/{name}" for name in ("accelerated", "broker", "cli", "client", "pipeline")),
    *(f"kohort/{name}" for name in ("protocol", "testing", "wire")),
    "benchmarks",
    "examples",
    "scripts",
    "tests",
]
DOCUMENTS = ["*.md", "changelog.d", "docs", "kohort", "tests", "benchmarks", "examples", "deploy"]

_ELLIPSIS = re.compile(r"\s*(?:Of|That of|Those|Whom?|As|None)\b")
"""Beginnings that leave out what is spoken of."""
_DANGLING = re.compile(
    r"\s*(?:Above|At|Before|Below|Beside|Between|By|For|From|If|In|Its?|Like|Likewise|Nor|Not|Nothing"
    r"|Or|Over|Since|So|That|Their|There|These|They|This|To (?:be|the|which|whom)|Under|Until|While"
    r"|With|Without)(?![\w-])"
)
"""Beginnings in the package that put a circumstance or a pronoun before what is spoken of. "When"
and "Where" stand for a value and are allowed."""
_QUESTION = re.compile(r"[^.!`\"]*\?(?=\s|$)")
"""A first sentence that asks."""
_STILTED = re.compile(
    r"(?<![\w`'\"/=-])(?:nobody(?:'s)?|who(?:m|so)?ever|anew|thereof|wherein|whereof|lest|whence|hence"
    r"forth|bears?|forborne)(?![\w`\"=-])",
    re.IGNORECASE,
)
"""Words that no maintainer uses. A name in quotes or backticks is not meant: `nobody` may be a
user."""


Texts: TypeAlias = list[tuple[int, str]]
"""(line, text) of each."""


@cache
def docstrings(path: Path) -> Texts:
    """Find the docstrings of a module, and those below its names."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                if isinstance(text, str):
                    found.append((statement.lineno, text))
    return found


def comments(path: Path) -> Texts:
    """Find the comments of a module."""
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    return [(one.start[0], one.string) for one in tokens if one.type == tokenize.COMMENT]


def modules(folder: str) -> list[Path]:
    """The Python files of a folder."""
    return sorted((ROOT / folder).rglob("*.py"))


def stilted(path: Path, texts: Texts) -> Iterator[str]:
    """The places in some texts of a file that have a stilted word."""
    for line, text in texts:
        for found in _STILTED.finditer(text):
            at = line + text.count("\n", 0, found.start())
            yield f"{path.relative_to(ROOT)}:{at}: {found.group()}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_docstring_begins_with_what_it_is_about(folder: str) -> None:
    elliptic = [
        f"{path.relative_to(ROOT)}:{line}: {text.strip().splitlines()[0]}"
        for path in modules(folder)
        for line, text in docstrings(path)
        if _ELLIPSIS.match(text)
    ]
    assert elliptic == []


def test_a_docstring_of_the_package_names_first_what_it_is_about() -> None:
    dangling = [
        f"{path.relative_to(ROOT)}:{line}: {text.strip().splitlines()[0]}"
        for path in modules("kohort")
        for line, text in docstrings(path)
        if _DANGLING.match(text)
    ]
    assert dangling == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_docstring_is_not_a_question(folder: str) -> None:
    questions = [
        f"{path.relative_to(ROOT)}:{line}: {text.strip().splitlines()[0]}"
        for path in modules(folder)
        for line, text in docstrings(path)
        if _QUESTION.match(text.strip())
    ]
    assert questions == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_comments_and_docstrings_have_no_stilted_words(folder: str) -> None:
    found = [
        place
        for path in modules(folder)
        for texts in (docstrings(path), comments(path))
        for place in stilted(path, texts)
    ]
    assert found == []


@pytest.mark.parametrize("folder", DOCUMENTS)
def test_documents_have_no_stilted_words(folder: str) -> None:
    paths = ROOT.glob(folder) if folder == "*.md" else (ROOT / folder).rglob("*.md")
    found = [place for path in sorted(paths) for place in stilted(path, [(1, path.read_text())])]
    assert found == []


@pytest.mark.parametrize(
    ("source", "tests"),
    [
        ('"""Of the table."""', [test_a_docstring_begins_with_what_it_is_about]),
        ('"""Is it ready?\n\nOr not.\n"""', [test_a_docstring_is_not_a_question]),
        ('"""The question: which one is\nit?"""', [test_a_docstring_is_not_a_question]),
        ("# Nobody waits.", [test_comments_and_docstrings_have_no_stilted_words]),
        ('"""A file,\nmade anew."""', [test_comments_and_docstrings_have_no_stilted_words]),
        ('"""What it bears."""', [test_comments_and_docstrings_have_no_stilted_words]),
        ('"""Whether the user `nobody` exists; a bearer token, `anew?`."""', []),
        ('# The id "nobody" is one. What now?', []),
    ],
)
def test_what_is_put_back_is_found(
    source: str, tests: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "module.py").write_text(source + "\n")
    for test in (
        test_a_docstring_begins_with_what_it_is_about,
        test_a_docstring_is_not_a_question,
        test_comments_and_docstrings_have_no_stilted_words,
    ):
        if test in tests:
            with pytest.raises(AssertionError):
                test("folder")
        else:
            test("folder")
    (tmp_path / "folder" / "page.md").write_text("The file is made anew.\n")
    with pytest.raises(AssertionError):
        test_documents_have_no_stilted_words("folder")
