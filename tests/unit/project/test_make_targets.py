"""What the Makefile offers is explained where people look for it."""

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
    recipe = re.search(r"^test:(.*) ##.*\n\t(.*)$", MAKEFILE, re.MULTILINE)
    assert recipe is not None
    assert {"lint", "types", "imports"} <= set(recipe[1].split())
    assert "$(SUITES)" in recipe[2]
    suites = re.search(r"SUITES := .*addprefix tests/,([\w ]+)\)", MAKEFILE)
    assert suites is not None
    assert set(suites[1].replace(" ", ",").split(",")) >= {
        path.parent.relative_to(ROOT / "tests").parts[0]
        for path in (ROOT / "tests").glob("*/**/test_*.py")
    }
