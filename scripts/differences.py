"""docs/differences.md: where this broker answers something else than Kafka, and why.

Made from the list by which the tests that ask both are lenient, so that nothing can be on one and
not on the other. `make docs` writes it.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PATH: Final = ROOT / "docs" / "differences.md"
SOURCES: Final = tuple(
    ROOT / "tests" / "interop" / "same_answers" / name
    for name in ("differences.py", "share_differences.py")
)
KINDS: Final = frozenset({"Difference", "Later"})

_NAMES: Final = " and ".join(f"`{source.relative_to(ROOT)}`" for source in SOURCES)
_HEAD: Final = f"""# Differences from Apache Kafka

Tests send the same requests to this broker and to an Apache Kafka 4.4.0 and compare the responses
field by field. These are all differences that they allow, derived by `make docs` from
{_NAMES}; [apis.md](apis.md) has the others.
"""
_FIRST: Final = "Everywhere"
_HEADING: Final = re.compile(r"# ([A-Z][^#]*)\.")


def document() -> str:
    """The document as it has to be."""
    parts: dict[str, list[str]] = {}
    for path in SOURCES:
        source = path.read_text(encoding="utf-8")
        headings = {
            number: found[1]
            for number, line in enumerate(source.splitlines(), 1)
            if (found := _HEADING.fullmatch(line))
        }
        for line, reason in _reasons(ast.parse(source)):
            before = [number for number in headings if number < line]
            parts.setdefault(headings[max(before)] if before else _FIRST, []).append(reason)
    listed = [
        f"\n## {part}\n\n" + "".join(f"- {reason}\n" for reason in reasons)
        for part, reasons in parts.items()
    ]
    return _HEAD + "".join(listed)


def _reasons(module: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, what it is about and why) of each difference, in the order of the file."""
    for statement in module.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(name)) | ast.FunctionDef(name=name):
                for call in _differences(statement):
                    sentence = _sentence(ast.literal_eval(call.args[0]))
                    about = "" if name == "ALWAYS" else f"*{_sentence(_words(name))}* "
                    yield call.lineno, about + sentence


def _differences(statement: ast.stmt) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(statement)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in KINDS
    ]


def _words(name: str) -> str:
    return name.lower().replace("_", " ")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
