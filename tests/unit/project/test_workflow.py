"""The forge runs what the Makefile offers, on all Pythons that are supported."""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
PATHS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEXT = "".join(path.read_text(encoding="utf-8") for path in PATHS)
WORKFLOWS: list[dict[Any, Any]] = [yaml.safe_load(path.read_text("utf-8")) for path in PATHS]
JOBS: dict[str, dict[str, Any]] = {
    name: job for workflow in WORKFLOWS for name, job in workflow["jobs"].items()
}


def steps(field: str) -> Iterator[Any]:
    """What the steps of all jobs have under this name."""
    for job in JOBS.values():
        for step in job["steps"]:
            if field in step:
                yield step[field]


def supported() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    names = " ".join(project["classifiers"])
    return re.findall(r"Programming Language :: Python :: (\d\.\d+)", names)


def test_its_form_is_what_the_forge_takes() -> None:
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema"]
    ran = subprocess.run(
        [*command, "vendor.github-workflows", *map(str, PATHS)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout


def test_every_supported_python_is_tested_and_gets_a_wheel() -> None:
    assert JOBS["test"]["strategy"]["matrix"]["python"] == supported()
    (dist,) = (step["run"] for step in JOBS["dist"]["steps"] if "run" in step)
    assert re.findall(r"python(3\.\d+)", dist) == supported()
    assert JOBS["test"]["env"]["CI"] == "true"


def test_actions_are_pinned_to_commits_with_their_versions_beside() -> None:
    lines = [line for line in TEXT.splitlines() if re.match(r"\s+- uses:|\s+uses:", line)]
    assert len(lines) == len(list(steps("uses")))
    for line in lines:
        assert re.search(r"uses: [\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", line), line
    pins = dict(re.findall(r"uses: (\S+)@(\w+)", TEXT))
    # The same one everywhere.
    assert len(set(re.findall(r"uses: (\S+)", TEXT))) == len(pins)


def test_it_may_read_and_nothing_else_and_every_job_has_an_end() -> None:
    assert all(workflow["permissions"] == {"contents": "read"} for workflow in WORKFLOWS)
    assert "secrets." not in TEXT
    assert all(job["timeout-minutes"] <= 360 for job in JOBS.values())
    # No address but those that the forge knows by itself.
    assert "://" not in TEXT
