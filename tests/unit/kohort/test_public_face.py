"""What users import from `kohort`, and that the command line does not pay for it."""

import re
import subprocess
import sys
from pathlib import Path

import kohort

_PROGRAM = """
import sys
import kohort.cli.serve
print(sorted(name for name in sys.modules if name.startswith("kohort.client")))
"""


def test_each_public_name_can_be_imported() -> None:
    for name in kohort._HOMES:
        assert getattr(kohort, name) is not None
        assert name in dir(kohort)


def test_type_checkers_see_the_names_that_there_are() -> None:
    text = Path(kohort.__file__).read_text()
    assert set(re.findall(r"import (\w+) as \1\n", text)) == set(kohort._HOMES)


def test_the_command_line_imports_no_consumer() -> None:
    answer = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, check=True)
    assert answer.stdout.strip() == b"[]"
