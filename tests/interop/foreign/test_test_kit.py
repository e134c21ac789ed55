"""The examples of the test kit in other languages, each run by its own tools."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.foreign.programs import CACHE, HERE, node_program, tool
from tests.support.processes import java_env

EXAMPLES = java_env.ROOT / "examples" / "testing"

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    """With CONTROL, as the examples want it."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kohort.cli", "testing", "serve"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    control = process.stdout.readline().split()[-1]
    yield os.environ | {"CONTROL": control}
    process.terminate()
    assert process.wait(30) == 0
    process.stdout.close()


def run(command: list[str], directory: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_java(environment: dict[str, str], tmp_path: Path) -> None:
    example = str(EXAMPLES / "BillingTest.java")
    command = [java_env.java(), "-cp", java_env.classpath(), example]
    assert "passed" in run(command, tmp_path, environment)


def test_javascript(environment: dict[str, str]) -> None:
    node_program("copy-with-kafkajs")  # Its packages are those of the example.
    place = CACHE / "node"
    shutil.copy(EXAMPLES / "billing.test.mjs", place)
    output = run([tool("node", "Node.js"), "--test", "billing.test.mjs"], place, environment)
    assert "# pass 1" in output


def test_go(environment: dict[str, str], tmp_path: Path) -> None:
    for name in ("go.mod", "go.sum"):
        shutil.copy(HERE / "go" / name, tmp_path)
    shutil.copy(EXAMPLES / "billing_test.go", tmp_path)
    output = run([tool("go", "Go"), "test", "-count=1", "-v", "."], tmp_path, environment)
    assert "--- PASS" in output
