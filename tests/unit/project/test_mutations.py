"""Mutants are valid Python, and run against the nearest tests first."""

import ast
from pathlib import Path

from scripts.mutants import Imports
from scripts.mutations import mutations

SOURCE = '''
LIMIT = 5

def smallest(numbers: list[int], least: int = 0) -> int | None:
    """Not "ä": < or 3."""
    assert least < 7
    self.count += 1
    log.warning("none of %d", least + 2)
    text = "ä"; found = min(one for one in numbers if one >= least)
    if not found and text:
        raise ValueError(f"{found + 1}")
    self.note(found, text, when=None)
    pairs = zip(numbers, strict=True)
    return found
'''

CHANGES = {
    ("if one >= least)", "if (one > least))"),
    ("least: int = 0)", "least: int = 1)"),
    ("found = min(", "found = max("),
    ("if not found and text:", "if (not found or text):"),
    ("if not found and text:", "if not (not found and text):"),
    ("if not found and text:", "if (found) and text:"),
    ('raise ValueError(f"{found + 1}")', "pass"),
    ("self.count += 1", "pass"),
    ("self.count += 1", "self.count += 2"),
    ("self.count += 1", "self.count += (0)"),
    ("self.note(found, text, when=None)", "pass"),
    ("self.note(found, text, when=None)", "self.note(text, found, when=None)"),
    ("self.note(found, text, when=None)", "self.note(found, text)"),
    ("return found", "return None"),
}


def test_each_change_is_made_once_and_no_text_assertion_or_log_line_is_changed() -> None:
    source = SOURCE.encode()
    made = [mutation.apply(source).decode() for mutation in mutations("kohort/a.py", source)]
    assert sorted(made) == sorted(SOURCE.replace(*change) for change in CHANGES)
    assert all(ast.parse(mutant) for mutant in made)


def test_tests_are_ordered_by_their_distance_in_imports(tmp_path: Path) -> None:
    for name, text in {
        "kohort/__init__.py": "",
        "kohort/broker/__init__.py": "from kohort.broker.log import Log",
        "kohort/broker/log.py": "",
        "kohort/broker/topic.py": "from kohort.broker import Log",
        "tests/support/topics.py": "from kohort.broker import topic",
        "tests/unit/broker/test_log.py": "import kohort.broker.log",
        "tests/unit/broker/test_files.py": "from kohort.broker.log import Log",
        "tests/unit/broker/test_topic.py": "from kohort.broker.topic import Topic",
        "tests/unit/test_far.py": "from tests.support.topics import topics",
        "tests/unit/test_other.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    near, far = Imports(tmp_path).tests("kohort/broker/log.py")
    names = ("broker/test_log", "broker/test_files", "broker/test_topic", "test_far")
    assert near == [f"tests/unit/{name}.py" for name in names]
    assert far == ["tests/unit/test_other.py"]
