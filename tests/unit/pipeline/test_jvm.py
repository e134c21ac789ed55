"""How it is known that a failure is that of a JVM which has gone."""

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

pyspark = pytest.importorskip("pyspark")


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """Another process in the place of the JVM that PySpark has started."""
    sleeping = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(sleeping, stdin=subprocess.PIPE) as process:
        monkeypatch.setattr(pyspark.SparkContext, "_gateway", SimpleNamespace(proc=process))
        yield process


def test_how_a_jvm_ended_is_told_and_of_one_that_runs_nothing(
    process: subprocess.Popen[bytes],
) -> None:
    from kohort.pipeline import jvm  # noqa: PLC0415

    assert jvm.ended(ValueError()) is None
    process.kill()
    assert jvm.ended(ConnectionRefusedError()) == "signal 9"
    assert jvm.ended(ValueError()) == "signal 9"


def test_without_a_jvm_of_ours_nothing_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    from kohort.pipeline import jvm  # noqa: PLC0415

    monkeypatch.setattr(pyspark.SparkContext, "_gateway", None)
    assert jvm.ended(ConnectionRefusedError()) is None
