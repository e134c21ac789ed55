"""The pytest plugin in other projects: nothing where it is not asked for, and its report."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
OTHERS = ("asyncio", "hypothesispytest", "randomly", "timeout")


def run(directory: Path, test: str, *options: str) -> str:
    """The output of pytest in a project that has no other plugins, warnings being errors."""
    (directory / "test_service.py").write_text(test)
    # Pytest would also use a configuration file of a directory above.
    (directory / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", *options]
    for other in OTHERS:
        command += ["-p", f"no:{other}"]
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        command,
        cwd=directory,
        check=False,
        capture_output=True,
        text=True,
        env={**environment, "PYTHONPATH": str(ROOT)},
    )
    return done.stdout + done.stderr


ASKS_FOR_NOTHING = """
import asyncio, sys

LOADED = {name for name in sys.modules if name.partition(".")[0] == "kohort"}

def test_nothing_of_the_broker_is_imported():
    assert LOADED == {"kohort", "kohort.testing", "kohort.testing.plugin"}

def test_the_loops_are_as_they_were():
    policy = asyncio.DefaultEventLoopPolicy if sys.version_info < (3, 14) else object
    if sys.version_info < (3, 14):
        assert type(asyncio.get_event_loop_policy()) is policy
    assert asyncio.run(asyncio.sleep(0, "ran")) == "ran"
"""


def test_a_project_that_asks_for_nothing_is_left_alone(tmp_path: Path) -> None:
    output = run(tmp_path, ASKS_FOR_NOTHING, "--strict-markers", "-n", "0")
    assert "2 passed" in output, output
    assert "groups of" not in output


FAILS = """
import pytest
from kohort.testing import kafka_settings
from kohort.protocol.messages.membership import *
from tests.support.groups.raw_members import RawMember, share

@kafka_settings({"num.partitions": 2})
def test_fails(kafka):
    kafka.create_topic("t")
    member = RawMember(kafka.port, "billing")
    member.arrive().answer()
    member.sync({member.member_id: share("t", 0, 1)})
    assert not "this fails"

@pytest.mark.kafka_settings({})
@pytest.mark.parametrize("number", range(6))
def test_passes(kafka, number):
    kafka.produce("t", str(number))
    assert [one.value for one in kafka.records("t")] == [b"%d" % number]
"""


def test_a_failed_test_tells_why_its_groups_rebalanced(tmp_path: Path, long_form: bool) -> None:
    # In the long form side by side.
    output = run(tmp_path, FAILS, "--strict-markers", "-n", "2" if long_form else "0")
    assert "1 failed, 6 passed" in output, output
    assert "groups of kafka" in output
    assert "Group billing rebalanced" in output
    assert "generation 0 -> 1, because member test-" in output


ON_VIRTUAL_TIME = """
import asyncio, time

async def test_hours_pass(virtual_kafka):
    await virtual_kafka.produce("t", b"x")
    await asyncio.sleep(3_600)
    assert virtual_kafka.now_ms >= 3_600_000

class TestInAClass:
    async def test_fails(self, virtual_kafka):
        assert virtual_kafka.seed != 7

def test_real_time_is_back():
    assert time.monotonic is not None
    assert time.monotonic.__module__ == "time"
"""


def test_coroutines_on_virtual_time_need_no_other_plugin_and_tell_their_seed(
    tmp_path: Path,
) -> None:
    output = run(tmp_path, ON_VIRTUAL_TIME, "-n", "0", "--kafka-seed", "7")
    assert "1 failed, 2 passed" in output, output
    assert "--kafka-seed=7 reproduces it" in output


WITH_ANYIO = """
import asyncio, pytest

pytestmark = pytest.mark.anyio

@pytest.fixture
def anyio_backend(request):
    return getattr(request, "param", "asyncio")

async def test_hours_pass(virtual_kafka):
    await virtual_kafka.produce("t", b"x")
    await asyncio.sleep(3_600)

async def test_without_a_broker():
    await asyncio.sleep(0)

@pytest.mark.parametrize("anyio_backend", ["trio", ("trio", {})], indirect=True)
async def test_on_trio(virtual_kafka):
    pass

@pytest.fixture
async def produced(virtual_kafka):
    yield await virtual_kafka.produce("t", b"x")

async def test_with_a_coroutine_fixture(produced):
    pass
"""


def test_marks_of_anyio_change_nothing_and_other_loops_are_rejected(tmp_path: Path) -> None:
    output = run(tmp_path, WITH_ANYIO, "-n", "0")
    assert "2 failed, 2 passed, 1 error" in output, output
    assert "add a fixture anyio_backend that returns" in output
    assert "fixture 'produced' is a coroutine" in output


def test_the_marker_is_listed_with_its_meaning(pytestconfig: pytest.Config) -> None:
    assert any(line.startswith("kafka_settings(") for line in pytestconfig.getini("markers"))
