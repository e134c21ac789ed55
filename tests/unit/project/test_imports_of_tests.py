"""Modules of the tests import each other in one direction."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[3]


def imports_of(tree: Path, package: str) -> Mapping[str, set[str]]:
    """Module -> the modules of the same package that it imports, wherever in its text.

    An import in a function, or for the type checker alone, counts: it says what a module needs.
    """
    paths = {
        ".".join(path.relative_to(tree).with_suffix("").parts): path
        for path in (tree / package).rglob("*.py")
    }
    return {
        name: {one for one in _imported(ast.parse(path.read_text())) if one in paths}
        for name, path in paths.items()
    }


def circle_in(imports: Mapping[str, set[str]]) -> list[str]:
    """Return the modules of one circle in their order, the first again at the end; or nothing."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return [str(module) for module in error.args[1]]
    return []


def _imported(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@cache
def imports_of_tests() -> Mapping[str, set[str]]:
    return imports_of(ROOT, "tests")


def test_modules_of_tests_do_not_import_each_other_in_a_circle() -> None:
    assert not circle_in(imports_of_tests())


def test_what_suites_share_imports_from_no_suite() -> None:
    wrong = [
        f"{name} imports {one}"
        for name, imported in imports_of_tests().items()
        if name.startswith("tests.support.")
        for one in imported
        if not one.startswith("tests.support.")
    ]
    assert not wrong


def test_a_circle_is_found_wherever_its_imports_are(tmp_path: Path) -> None:
    package = tmp_path / "some"
    package.mkdir()
    (package / "one.py").write_text("from some.two import name\n")
    (package / "two.py").write_text("if TYPE_CHECKING:\n    from some import three\n")
    (package / "three.py").write_text("def later():\n    import some.one\n")
    (package / "four.py").write_text("import os\nfrom some.one import name\n")

    imports = imports_of(tmp_path, "some")

    assert imports["some.four"] == {"some.one"}
    first, *others = circle_in(imports)
    assert others[-1] == first
    assert set(others) == {"some.one", "some.two", "some.three"}
    (package / "three.py").write_text("")
    assert circle_in(imports_of(tmp_path, "some")) == []
