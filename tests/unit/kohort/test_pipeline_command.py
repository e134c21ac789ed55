"""`kohort pipeline` on machines that lack what it needs: words, no tracebacks."""

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kohort.cli
from kohort.cli import main


@pytest.fixture
def somebody_listens() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_each_command_is_listed_without_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("land", "rebalances", "advise", "report", "jars"))


def test_it_can_be_started_by_its_path_as_spark_submit_does(tmp_path: Path) -> None:
    script = Path(kohort.cli.__file__).with_name("__main__.py")
    done = subprocess.run(
        [sys.executable, str(script), "pipeline", "land", "--help"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(kohort.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "--available-now" in done.stdout


def test_without_the_extra_it_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "land", "orders"])
    assert ended.value.code == 3
    assert "pip install 'kohort[spark]'" in capsys.readouterr().err


def test_without_java_it_says_what_to_install(
    somebody_listens: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main(["pipeline", "land", "orders", "--bootstrap-server", somebody_listens]) == 3
    assert "Spark needs Java 17 or 21" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--bootstrap-server", "nowhere:port"], "'nowhere:port' is not host:port"),
        (["--kafka", "isolation.level"], "--kafka: 'isolation.level' is not NAME=VALUE"),
        (["--kafka-config", "/nonexistent"], "--kafka-config /nonexistent: No such file"),
        (["--conf", "master"], "--conf 'master' is not NAME=VALUE"),
        (["--kafka", "=hunter2"], "--kafka: "),
    ],
)
def test_what_cannot_be_meant_is_named(
    arguments: list[str],
    told: str,
    somebody_listens: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("pyspark")
    given = ["pipeline", "land", "orders", "--bootstrap-server", somebody_listens, *arguments]
    assert main(given) == 2
    err = capsys.readouterr().err
    assert told in err
    assert "hunter2" not in err


def test_a_java_home_without_java_is_named_instead_of_the_java_of_the_path(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    somebody_listens: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert main(["pipeline", "land", "orders", "--bootstrap-server", somebody_listens]) == 3
    told = capsys.readouterr().err
    assert f"JAVA_HOME is {tmp_path}" in told
    assert "unset it" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ("land", "orders", "--interval", "-3"),
        ("land", "orders", "--interval", "nan"),
        ("land", "orders", "--patience", "inf"),
        ("rebalances", "--interval", "0"),
        ("advise", "--days", "-1"),
    ],
)
def test_a_duration_that_cannot_be_meant_is_refused_before_anything_is_done(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", *arguments])
    assert ended.value.code == 2
    assert f"argument {arguments[-2]}: must be a number" in capsys.readouterr().err
