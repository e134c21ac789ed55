"""What the documents name is there: functions, files, settings, targets, links."""

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from kohort.broker.config.current import BROKER_SETTINGS
from scripts import differences, group_states

ROOT = Path(__file__).parents[3]
ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
DOCUMENTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "kohort").rglob("README.md")),
    *sorted((ROOT / "tests").rglob("README.md")),
]
SOURCES = ("broker", "client", "kohort", "pipeline", "protocol", "scripts")

_PATH = rf"(?:{'|'.join(SOURCES)})/[\w/]+\.py"
_ROW = re.compile(rf"^\| `({_PATH})` \| (`[\w.`, ]+`) \|", re.MULTILINE)
"""A row of a walk: a file, the functions in it, what happens."""
_REFERENCE = re.compile(rf"`([A-Za-z_][\w.]*)`(?:,| of)?\s+(?:in\s+)?\(?`({_PATH})`")
"""`name` (`file.py`), `name`, `file.py` or `name` in `file.py`."""


def named(text: str) -> Iterator[tuple[str, str]]:
    """(file, name in it) wherever the text says which file something is in."""
    for path, names in _ROW.findall(text):
        for name in re.findall(r"`([\w.]+)`", names):
            yield path, name
    for name, path in _REFERENCE.findall(text):
        if not name.endswith(".py"):
            yield path, name


def _module(path: str) -> ModuleType:
    """The module as it is written: what is compiled does not show all that it has."""
    name = "kohort." + path.removesuffix(".py").removeprefix("kohort/").replace("/", ".")
    module = importlib.import_module(name)
    if not str(module.__file__).endswith(".py"):
        spec = importlib.util.spec_from_file_location(name, ROOT / path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def is_defined(path: str, name: str) -> bool:
    found: object = _module(path)
    for part in name.split("."):
        declared = getattr(found, "__annotations__", {})
        if not hasattr(found, part):
            return part in declared
        found = getattr(found, part)
    return True


def test_a_function_is_where_the_documents_say() -> None:
    places = {place for document in DOCUMENTS for place in named(document.read_text())}
    assert [place for place in sorted(places) if not is_defined(*place)] == []


def test_every_file_that_a_document_names_exists() -> None:
    path_in_text = re.compile(rf"`((?:{'|'.join(SOURCES)}|tests|docs)/[\w/.-]+)`")
    missing = [
        (document.name, path)
        for document in DOCUMENTS
        for path in path_in_text.findall(document.read_text())
        if not (ROOT / path).exists()
    ]
    assert missing == []


def test_every_link_leads_somewhere() -> None:
    broken = []
    for document in DOCUMENTS:
        links = re.findall(r"\]\(([^)\s]+)\)", document.read_text())
        for link in links:
            path, _, anchor = link.partition("#")
            target = document.parent / path if path else document
            if link.startswith("http"):
                continue
            if not target.exists() or (anchor and anchor not in anchors_in(target)):
                broken.append((document.name, link))
    assert broken == []


def anchors_in(document: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_setting_or_module_of_ours_that_a_document_names_exists() -> None:
    name_in_text = re.compile(r"`(kohort(?:\.[a-z_]+){2,})(?:=[^`]*)?`")
    missing = [
        (document.name, name)
        for document in DOCUMENTS
        for name in name_in_text.findall(document.read_text())
        if name not in BROKER_SETTINGS and not _is_module(name)
    ]
    assert missing == []


def _is_module(name: str) -> bool:
    """Whether it is a module of ours, whose logger has the same name."""
    place = ROOT.joinpath(*name.split("."))
    return (place / "__init__.py").exists() or place.with_suffix(".py").exists()


def test_every_make_target_that_a_document_names_exists() -> None:
    offered = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    target_in_text = re.compile(r"`make ([a-z]+)|^make ([a-z]+)", re.MULTILINE)
    missing = [
        (document.name, quoted or typed)
        for document in DOCUMENTS
        for quoted, typed in target_in_text.findall(document.read_text())
        if (quoted or typed) not in offered
    ]
    assert missing == []


def test_the_states_of_a_group_are_drawn_as_the_code_has_them() -> None:
    """`make docs` draws them again."""
    text = ARCHITECTURE.read_text()

    assert group_states.renew(text) == text
    assert group_states.diagram() in text


def test_no_two_decisions_have_the_same_number() -> None:
    """Numbers of merged decisions are not used again."""
    numbers = [int(path.stem[:4]) for path in (ROOT / "docs" / "adr").glob("*.md")]
    assert len(set(numbers)) == len(numbers)


def test_the_differences_that_tests_accept_are_those_in_the_document() -> None:
    text = differences.PATH.read_text(encoding="utf-8")
    assert text == differences.document(), "run make docs"
    assert text.count("\n- ") > 30
