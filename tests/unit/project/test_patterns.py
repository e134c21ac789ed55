"""What sources must not contain, whatever they do."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
SOURCES = sorted(
    path for room in ("broker", "protocol") for path in (ROOT / "kohort" / room).rglob("*.py")
)


def positional_patterns(source: str) -> list[int]:
    """Lines of `case Point(x, y)`."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.MatchClass) and node.patterns
    ]


@pytest.mark.parametrize("room", ["broker", "protocol"])
def test_the_broker_matches_no_field_by_its_position(room: str) -> None:
    """For each look, CPython 3.11 makes the text `__match_args__`, and its cache of attributes
    keeps up to 4,096 of them: each on a page of its own, that is 16 MiB.
    """
    sources = [path for path in SOURCES if path.relative_to(ROOT).parts[1] == room]
    assert len(sources) > 20
    found = {
        str(path): lines
        for path in sources
        if (lines := positional_patterns(path.read_text(encoding="utf-8")))
    }
    assert found == {}


def test_a_position_is_seen() -> None:
    assert positional_patterns("match x:\n    case Point(a, b):\n        pass\n") == [2]
    assert positional_patterns("match x:\n    case Point(x=a):\n        pass\n") == []
