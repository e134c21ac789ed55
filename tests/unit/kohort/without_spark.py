"""`kohort groups` in a process without the packages of the extras."""

import subprocess
import sys
from pathlib import Path

from tests.support.processes.commands import Said

_PROGRAM = """
import runpy, sys
for name in ("pyspark", "delta", "pandas", "pyarrow", "py4j", "matplotlib", "jinja2"):
    sys.modules[name] = None  # An import of it fails, as where the extra is not installed.
sys.argv = ["kohort", "groups", *sys.argv[1:]]
runpy.run_module("kohort.cli", run_name="__main__", alter_sys=True)
"""


def said_without_spark(*arguments: str | Path) -> Said[str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *arguments],
        check=False,
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return Said(done.returncode, done.stdout, done.stderr)
