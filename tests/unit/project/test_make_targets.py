"""What the Makefile offers is explained where people look for it."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text()


def targets() -> list[str]:
    """The names that may be given to make, beside the files that it makes."""
    declared = re.search(r"^\.PHONY:((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    assert declared is not None
    return declared[1].replace("\\\n", " ").split()


@pytest.mark.parametrize("target", targets())
def test_each_target_is_in_the_help_and_in_the_contributors_guide(target: str) -> None:
    listing = subprocess.run(
        ["make", "--no-print-directory", "help"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    guide = (ROOT / "CONTRIBUTING.md").read_text()

    assert re.search(rf"^  {target} ", listing, re.MULTILINE)
    assert f"`make {target}`" in guide


def test_the_build_machine_runs_everything() -> None:
    assert "exec make test" in (ROOT / ".ci" / "run").read_text()
    recipe = re.search(r"^test: ##.*\n\t(.*)\n\t(.*)$", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    assert {"$(SIDE_BY_SIDE)", "lint", "types", "imports", "$(PREPARED)"} <= set(recipe[1].split())
    assert "$(SUITES)" in recipe[2]
    suites = re.search(r"SUITES \?= .*addprefix tests/,([\w ]+)\)", MAKEFILE)
    assert suites is not None
    assert set(suites[1].replace(" ", ",").split(",")) >= {
        path.parent.relative_to(ROOT / "tests").parts[0]
        for path in (ROOT / "tests").glob("*/**/test_*.py")
    }


def recipes_of_run(directory: Path) -> list[str]:
    """The commands that `make run` would carry out with its environment and stamps there."""
    return subprocess.run(
        ["make", "--dry-run", "run", f"VENV={directory}/venv", f"CACHE={directory}/cache"],
        cwd=ROOT,
        # A make that runs this test tells its children how to speak.
        env={name: value for name, value in os.environ.items() if "MAKE" not in name},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()


def test_a_later_run_says_nothing_of_its_own(tmp_path: Path) -> None:
    for made in ("venv/bin/python", "cache/make/core"):
        (tmp_path / made).parent.mkdir(parents=True)
        (tmp_path / made).touch()

    (first, *_) = recipes_of_run(tmp_path)
    assert first.startswith("exec ")
