"""Users that `kohort.users.file` gives, over real sockets, before and after it changes."""

import asyncio
import base64
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from kohort.broker.app import StartError
from kohort.broker.security import listeners
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.server_process import free_port
from tests.support.network.sasl import log_in, log_in_by_scram
from tests.support.network.wire import RawClient
from tests.support.processes.commands import users_here

SCRAM = "SCRAM-SHA-256"
PASSWORD = "a secret: 100%"


@dataclass
class Place:
    """A broker, its file of users, and how they are asked."""

    file: Path
    ports: Mapping[str, int]
    broker: BrokerThread
    printed: Callable[[], str]

    def lines(self, user: str, password: str = PASSWORD) -> str:
        return hashed(self.printed, user, password)

    def write(self, *lines: str) -> None:
        """Another file in its place, as deployments do it."""
        new = self.file.with_suffix(".new")
        new.write_text("\n".join(lines))
        new.chmod(0o600)
        new.replace(self.file)

    def users(self, *arguments: str, password: str | None = None) -> int:
        where = ("--bootstrap-server", f"127.0.0.1:{self.ports['PLAINTEXT']}")
        return users_here(*arguments, *where, password=password)

    def look(self) -> None:
        asyncio.run_coroutine_threadsafe(self._look(), self.broker._loop).result(30)

    async def _look(self) -> None:
        file = self.broker.broker.listeners.users_file
        assert file is not None
        await file.reload_if_changed(self.broker.broker.listeners._executor)

    def lets_in(self, user: str, password: str = PASSWORD) -> list[bool]:
        """By PLAIN twice, as the second time it may be remembered, and by SCRAM."""
        told = []
        for way in (log_in, log_in, log_in_by_scram):
            with RawClient(self.ports["SASL_PLAINTEXT"]) as client:
                told.append(way(client, user, password).error_code == 0)
        return told

    def page(self, user: str = "carol", password: str = PASSWORD) -> str:
        """The metrics; empty for a user who may not see them."""
        credentials = base64.b64encode(f"{user}:{password}".encode()).decode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.ports['http']}/metrics",
            headers={"Authorization": f"Basic {credentials}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            error.close()
            return ""


def hashed(printed: Callable[[], str], user: str, password: str) -> str:
    """The lines of a user, both mechanisms."""
    printed()
    assert users_here("hash", user, "--iterations", "4096", password=password) == 0
    return printed().strip()


def settings(file: Path, ports: Mapping[str, int]) -> dict[str, str]:
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports['PLAINTEXT']},"
        f"SASL_PLAINTEXT://127.0.0.1:{ports['SASL_PLAINTEXT']}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "connection.failed.authentication.delay.ms": "1",
        "kohort.metrics.port": str(ports["http"]),
        "kohort.http.authentication": "basic",
        "kohort.users.file": str(file),
    }


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    return lambda: capsys.readouterr().out


@pytest.fixture
def place(tmp_path: Path, printed: Callable[[], str]) -> Iterator[Place]:
    """With alice and carol in the file."""
    file = tmp_path / "users"
    ports = {name: free_port() for name in ("PLAINTEXT", "SASL_PLAINTEXT", "http")}
    broker = BrokerThread(tmp_path / "data", overrides=settings(file, ports))
    made = Place(file, ports, broker, printed)
    made.write("# for tests", made.lines("alice"), "", made.lines("carol"))
    with broker:
        yield made


def test_users_of_the_file_are_let_in_and_described(place: Place) -> None:
    assert place.lets_in("alice") == [True] * 3
    assert place.lets_in("alice", "other") == [False] * 3
    assert "kohort_users_file_reload_failures_total 0" in place.page()
    assert place.page("carol", "other") == ""
    assert place.users("list") == 0
    listed = place.printed()
    assert [line.split()[0] for line in listed.splitlines()] == ["USER", "alice", "carol"]
    # Nothing of them is written to the store.
    assert not place.broker.broker.services.topics.disk.data.store.properties("user:")


def test_what_is_stored_counts_before_the_file(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.users("remove", "alice") == 4
    assert "kohort.users.file, which the broker does not write" in capsys.readouterr().err
    assert place.users("password", "alice", password="other") == 0
    assert place.lets_in("alice") == [False] * 3
    assert place.lets_in("alice", "other") == [True] * 3
    assert place.users("remove", "alice") == 0
    assert "still has the password in kohort.users.file" in capsys.readouterr().out
    assert place.lets_in("alice") == [True] * 3
    assert place.users("disable", "alice") == 0
    assert place.lets_in("alice") == [False] * 3


def test_a_file_that_changes_is_read_again(place: Place) -> None:
    assert place.lets_in("alice") == [True] * 3
    place.write(place.lines("alice", "newer"), place.lines("dave"))
    place.look()
    assert place.lets_in("alice") == [False] * 3
    assert place.lets_in("alice", "newer") == [True] * 3
    assert place.lets_in("dave") == [True] * 3
    assert place.lets_in("carol") == [False] * 3


def test_a_file_that_becomes_wrong_keeps_its_users_and_is_told_once(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.write(place.lines("dave"), "alice:hunter2")
    for _ in range(3):
        place.look()
    errors = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert len(errors) == 1
    assert f"{place.file}: line 3: it is not name:mechanism" in errors[0]
    assert "hunter2" not in caplog.text
    assert place.lets_in("alice") == [True] * 3
    assert place.lets_in("dave") == [False] * 3
    place.file.unlink()
    place.look()
    assert "kohort.users.file cannot be read" in caplog.text
    assert "kohort_users_file_reload_failures_total 2" in place.page()
    place.write(place.lines("dave"))
    place.look()
    assert place.lets_in("dave") == [True] * 3
    assert place.lets_in("alice") == [False] * 3


def test_the_file_is_looked_at_without_a_listener_with_tls(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(listeners, "RELOAD_INTERVAL_S", 0.01)
    place.broker.stop()
    again = BrokerThread(tmp_path / "data", overrides=settings(place.file, place.ports))
    with again:
        place.write(place.lines("dave"))
        # Each attempt takes longer than several looks.
        assert any(all(place.lets_in("dave")) for _ in range(50))


def test_a_signal_has_it_read_at_once(place: Place) -> None:
    place.write(place.lines("dave"))
    place.broker.call(place.broker.broker.listeners.reload_soon)
    assert any(all(place.lets_in("dave")) for _ in range(50))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "kohort.users.file cannot be read: .*No such file"),
        ("\n\nalice:hunter2\n", "line 3: it is not name:mechanism"),
    ],
)
def test_a_broker_with_a_wrong_file_does_not_start(
    tmp_path: Path, text: str | None, told: str
) -> None:
    ports = {name: free_port() for name in ("PLAINTEXT", "SASL_PLAINTEXT", "http")}
    file = tmp_path / "users"
    if text is not None:
        file.write_text(text)
    broker = BrokerThread(tmp_path / "data", overrides=settings(file, ports))
    with pytest.raises(StartError, match=told) as raised, broker:
        pass
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o640, False), (0o644, True)])
def test_a_file_that_everybody_may_read_is_warned_of(
    tmp_path: Path,
    printed: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
    mode: int,
    warns: bool,
) -> None:
    file = tmp_path / "users"
    file.write_text(hashed(printed, "alice", PASSWORD))
    file.chmod(mode)
    ports = {name: free_port() for name in ("PLAINTEXT", "SASL_PLAINTEXT", "http")}
    with BrokerThread(tmp_path / "data", overrides=settings(file, ports)):
        pass
    assert ("who could guess" in caplog.text) == warns
