"""A handler's module has one API, and takes nothing from another one's."""

import ast
from pathlib import Path

import pytest

HANDLERS = Path(__file__).parents[3] / "kohort/broker/handlers"
PACKAGE = "kohort.broker.handlers"


def imported_rooms(source: str) -> set[str]:
    """The names after the package's in all imports from within it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            module = node.module or ""
            names = [f"{module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {
            name.removeprefix(f"{PACKAGE}.").partition(".")[0]
            for name in names
            if name.startswith(f"{PACKAGE}.")
        }
    return found


def test_an_import_is_found_in_each_of_its_forms() -> None:
    source = f"from {PACKAGE}.a import x\nfrom {PACKAGE} import b\nimport {PACKAGE}.c\nimport d\n"
    assert imported_rooms(source) == {"a", "b", "c"}


@pytest.mark.parametrize("path", sorted(HANDLERS.glob("*.py")), ids=lambda path: path.stem)
def test_what_apis_share_is_in_the_room_for_it(path: Path) -> None:
    assert imported_rooms(path.read_text()) <= {"shared"}
