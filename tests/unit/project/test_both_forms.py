"""What is compiled is what is written, and what is written works by itself.

A run of the tests takes a module's compiled form where there is one, so that the tests of these
modules run once more here, as they are written.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.as_written import PACKAGES

ROOT = Path(__file__).parents[3]
SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))
TYPES = sorted(
    path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.pxd")
)
COMPILED = [path for path in TYPES if (ROOT / path).with_suffix(SUFFIX).exists()]


def test_there_are_modules_to_compile() -> None:
    assert Path("kohort/broker/network/connection.pxd") in TYPES


@pytest.mark.parametrize("types", TYPES, ids=str)
def test_what_is_compiled_is_what_is_written_here(types: Path) -> None:
    if types not in COMPILED:
        pytest.skip("not compiled")
    here = ROOT / types
    newest = max(one.stat().st_mtime for one in (here, here.with_suffix(".py")))
    assert here.with_suffix(SUFFIX).stat().st_mtime >= newest, "compile it: pip install -e ."


def test_compiled_modules_pass_their_tests_as_they_are_written() -> None:
    if not COMPILED:
        pytest.skip("nothing is compiled: what is written has run already")
    # What has no tests of its own is tested with what imports it, as all are in that run.
    tests = [
        path
        for types in COMPILED
        if (
            path := ROOT
            / "tests/unit"
            / types.parent.relative_to("kohort")
            / f"test_{types.stem}.py"
        ).exists()
    ]
    assert len(tests) > 1
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.as_written", *map(str, tests)],
        cwd=ROOT,
        # Without what the run around this one may have been told by its environment.
        env={name: value for name, value in os.environ.items() if "PYTEST" not in name},
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert run.returncode == 0, run.stdout[-5_000:] + run.stderr[-5_000:]
