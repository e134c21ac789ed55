"""What tests/conftest.py registers: a run that leaves tests out or takes too long has failed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

CONFTEST = """
import os
from tests.support.suites import budgets
from tests.support.suites import hangs
from tests.support.suites import left_out
from tests.support.suites import side_by_side

def pytest_configure(config):
    side_by_side.prepare(config)
    config.pluginmanager.register(hangs.Watchdog(grace_s=0.5))
    config.pluginmanager.register(left_out.NothingLeftOut())
    config.pluginmanager.register(budgets.Meter())
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(budgets.Bill({"quick": 60, "slow": 1}))
"""

LEFT_OUT = """
import pytest

def test_skipped():
    pytest.skip("no such tool")

def test_allowed():
    pytest.skip("no file system can be mounted here")

@pytest.mark.xfail(strict=True)
def test_expected():
    assert False
"""

WANTS_A_PACKAGE = """
import pytest

pytest.importorskip("no_such_package")
"""

TAKES_LONG = """
import subprocess, sys

def test_takes_long():
    code = "import time\\nwhile time.process_time() < 1.5: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
"""

SLEEPS = """
import time

def test_sleeps():
    time.sleep(0.5)
"""

TELLS_ITS_PROCESS = """
import os, pathlib, time, pytest

@pytest.mark.parametrize("number", range(10))
def test_tells_its_process(number):
    time.sleep(0.01)
    with open(pathlib.Path(__file__).parents[2] / "processes", "a") as told:
        print(os.environ["PYTEST_XDIST_WORKER"], os.path.basename(__file__), file=told)
"""

HANGS = """
import signal, time, pytest

@pytest.mark.timeout(1)
def test_hangs():
    # As in a loop in C: no handler of Python's is called.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(600)
"""

DIES = """
import os

def test_dies():
    os._exit(1)

def test_is_reached():
    pass
"""


def run(place: Path, files: dict[str, str], *arguments: str, ci: str = "") -> tuple[int, str]:
    """Exit code and output of pytest over these files, with our plugins."""
    for name, text in {"conftest.py": CONFTEST, "pytest.ini": "[pytest]", **files}.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    names = ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "REQUIRE_JAVA")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment |= {"PYTHONPATH": str(ROOT), "CI": ci}
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, *arguments, "."],
        cwd=place,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


def test_a_test_that_is_left_out_fails_where_everything_has_to_be_there(tmp_path: Path) -> None:
    files = {"suites/unit/test_left_out.py": LEFT_OUT}
    code, told = run(tmp_path, files, ci="true")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert "nothing may be left out here (CI=true): no such tool" in told
    assert "1 failed, 1 skipped, 1 xfailed" in told
    code, told = run(tmp_path, files)
    assert code == pytest.ExitCode.OK
    assert "2 skipped, 1 xfailed" in told


def test_so_does_a_module_whose_package_is_missing(tmp_path: Path) -> None:
    files = {"suites/unit/test_wants.py": WANTS_A_PACKAGE}
    code, told = run(tmp_path, files, ci="true")
    assert code == pytest.ExitCode.INTERRUPTED
    assert "could not import 'no_such_package'" in told


def test_a_suite_that_passes_its_budget_of_processor_time_fails_the_run(tmp_path: Path) -> None:
    files = {
        "suites/slow/test_takes_long.py": TAKES_LONG,
        "suites/quick/test_sleeps.py": SLEEPS,
    }
    code, told = run(tmp_path, files, "-n", "2")
    assert code == pytest.ExitCode.TESTS_FAILED
    assert re.search(r"slow took \d+ s of processor time, and its budget is 1 s", told)
    assert "quick took" not in told
    slowest = told.partition("the slowest 20 tests")[2]
    assert "suites/quick/test_sleeps.py::test_sleeps" in slowest
    assert slowest.partition("processes: ")[2].count("\ngw") == 2
    files["suites/slow/test_takes_long.py"] = SLEEPS
    code, told = run(tmp_path, files, "-n", "2")
    assert code == pytest.ExitCode.OK
    assert "the slowest 20 tests" in told


def test_tests_that_share_a_broker_are_run_by_one_process(tmp_path: Path) -> None:
    names = ("same_answers_topics", "same_groups_offsets", "broker_trouble", "rolling_restart")
    files = {f"tests/interop/test_{name}.py": TELLS_ITS_PROCESS for name in names}
    code, _ = run(tmp_path, files, "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder")
    assert code == pytest.ExitCode.OK
    told = [line.split() for line in (tmp_path / "processes").read_text().splitlines()]
    assert len(told) == 40
    assert {process for process, _ in told} == {"gw0", "gw1"}
    assert len({process for process, name in told if "test_same" in name}) == 1


def test_a_process_that_dies_fails_its_test_and_holds_nothing_up(tmp_path: Path) -> None:
    files = {f"tests/unit/test_{name}.py": TELLS_ITS_PROCESS for name in ("one", "two")}
    files["tests/unit/test_three.py"] = DIES
    arguments = ("--max-worker-restart=1", "--timeout=60")
    code, told = run(
        tmp_path, files, "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder", *arguments
    )
    assert code == pytest.ExitCode.TESTS_FAILED, told
    assert "crashed while running 'tests/unit/test_three.py::test_dies'" in told


def test_a_test_that_cannot_be_interrupted_says_where_it_hangs_and_has_failed(
    tmp_path: Path,
) -> None:
    files = {"tests/unit/test_hangs.py": HANGS, "tests/unit/test_others.py": TELLS_ITS_PROCESS}
    code, told = run(tmp_path, files, "-n", "2", "--dist", "loadgroup")
    assert code == pytest.ExitCode.TESTS_FAILED, told
    assert 'test_hangs.py", line 8 in test_hangs' in told
    assert "crashed while running 'tests/unit/test_hangs.py::test_hangs'" in told
    assert "10 passed" in told
