"""The daemon under a service manager, which it tells that it is ready; its log as JSON."""

import configparser
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from kohort.broker.runtime import service_manager

ROOT = Path(__file__).parents[2]


def command(directory: Path, *overrides: str) -> list[str]:
    given = [
        "listeners=PLAINTEXT://127.0.0.1:0",
        "kohort.metrics.port=-1",
        "kohort.console.port=-1",
        *overrides,
    ]
    options = [word for one in (f"log.dirs={directory}", *given) for word in ("--override", one)]
    return [sys.executable, "-m", "kohort", "serve", *options]


def test_the_service_manager_is_told_and_every_line_is_json(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        broker = subprocess.Popen(
            command(tmp_path / "data", "kohort.log.format=json"),
            env=os.environ | {"NOTIFY_SOCKET": str(tmp_path / "notify")},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert manager.recv(100) == b"READY=1"
        broker.send_signal(signal.SIGTERM)
        assert manager.recv(100) == b"STOPPING=1"
        _, log = broker.communicate(timeout=60)
    assert broker.returncode == 0
    lines = [json.loads(line) for line in log.splitlines()]
    assert {"Stopping", "Stopped"} <= {line["message"] for line in lines}
    for line in lines:
        assert {"time", "level", "logger", "message"} <= line.keys()
        assert datetime.fromisoformat(line["time"]).tzinfo is not None


def test_sigusr1_prints_the_stacks_and_the_broker_continues(tmp_path: Path) -> None:
    broker = subprocess.Popen(
        command(tmp_path / "data"), stderr=subprocess.PIPE, text=True, bufsize=1
    )
    assert broker.stderr is not None
    while "serves" not in broker.stderr.readline():
        pass
    broker.send_signal(signal.SIGUSR1)
    while "run_daemon" not in broker.stderr.readline():
        pass
    broker.send_signal(signal.SIGTERM)
    _, log = broker.communicate(timeout=60)
    assert (broker.returncode, "Stopped" in log) == (0, True)


def test_sighup_does_not_end_a_broker_that_is_starting(tmp_path: Path) -> None:
    broker = subprocess.Popen(
        command(tmp_path / "data", "kohort.metrics.port=0"),
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    assert broker.stderr is not None
    while "Metrics are on" not in broker.stderr.readline():
        assert broker.poll() is None
    broker.send_signal(signal.SIGHUP)
    while "serves" not in broker.stderr.readline():
        assert broker.poll() is None
    broker.send_signal(signal.SIGTERM)
    broker.communicate(timeout=60)
    assert broker.returncode == 0


def test_a_manager_that_cannot_be_told_stops_no_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nowhere"))
    service_manager.notify(service_manager.READY)
    assert "Cannot send READY=1" in caplog.text


def test_an_abstract_address_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"kohort-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        manager.settimeout(10)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}")
        service_manager.notify(service_manager.STOPPING)
        assert manager.recv(100) == b"STOPPING=1"


def test_the_unit_starts_what_there_is() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # Names have capitals.
    text = (ROOT / "deploy" / "systemd" / "kohort.service").read_text(encoding="utf-8")
    unit.read_string(text)
    assert unit["Service"]["Type"] == "notify"
    words = shlex.split(unit["Service"]["ExecStart"])
    assert words[1:-1] == ["serve", "--config"]
    # What its head has one do is what it needs.
    assert f"{Path(words[0]).parent}/pip install ." in text
    assert f"log.dirs=/var/lib/{unit['Service']['StateDirectory']} > {words[-1]}" in text
    asked = [sys.executable, "-m", "kohort.cli", "serve", "--help"]
    told = subprocess.run(asked, check=True, capture_output=True, text=True).stdout
    assert "--config FILE" in told
    # The service manager creates the directory, and no other user may enter it.
    assert unit["Service"]["StateDirectoryMode"] == "0700"


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    text = (ROOT / "deploy" / "systemd" / "kohort.service").read_text(encoding="utf-8")
    # The commented lines are part of the recipe.
    unit = tmp_path / "kohort.service"
    unit.write_text(
        text.replace("#LoadCredential", "LoadCredential").replace(
            "/opt/kohort/bin/kohort", "/bin/true"
        )
    )
    ran = subprocess.run(
        ["systemd-analyze", "verify", unit], check=False, capture_output=True, text=True
    )
    assert (ran.returncode, ran.stderr) == (0, "")
