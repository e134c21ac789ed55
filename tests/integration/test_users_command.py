"""`kohort users`, on a running broker and on the data directory of one that is stopped."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.sasl import log_in, log_in_by_scram
from tests.support.network.wire import RawClient
from tests.support.processes.commands import users_here

SASL = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path / "data") as broker:
        yield broker


def is_let_in(port: int, user: str, password: str) -> bool:
    with RawClient(port) as client:
        return log_in(client, user, password).error_code == 0


def is_authenticated(port: int, name: str, user: str, password: str) -> bool:
    """Whether a client of the SCRAM mechanism `name` is."""
    with RawClient(port) as client:
        return log_in_by_scram(client, user, password, name).error_code == 0


@pytest.mark.parametrize("is_running", [False, True])
def test_each_mechanism_may_have_its_own_password(tmp_path: Path, *, is_running: bool) -> None:
    here = ("--data", str(tmp_path))
    only = ("password", "alice", "--mechanism", "SCRAM-SHA-512")
    assert users_here("add", "alice", *here, password="first") == 0
    if is_running:
        with BrokerThread(tmp_path) as broker:
            where = ("--bootstrap-server", f"127.0.0.1:{broker.port}")
            assert users_here(*only, *where, password="second") == 0
    else:
        assert users_here(*only, *here, password="second") == 0
    mechanisms = {"sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512"}
    with BrokerThread(tmp_path, overrides=SASL | mechanisms) as broker:
        for name, right in (("SCRAM-SHA-256", "first"), ("SCRAM-SHA-512", "second")):
            for password in ("first", "second"):
                found = is_authenticated(broker.port, name, "alice", password)
                assert found is (password == right)


def test_the_first_user_is_added_before_there_is_a_broker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert users_here("add", "admin", "--data", str(data), password="secret") == 0
    with BrokerThread(data, overrides=SASL) as broker:
        assert is_let_in(broker.port, "admin", "secret")
        assert users_here("list", "--data", str(data)) == 3
        assert "omit --data" in capsys.readouterr().err
    assert users_here("password", "admin", "--data", str(data), password="other") == 0
    assert users_here("list", "--data", str(data)) == 0
    assert "admin" in capsys.readouterr().out
    assert (data / "metadata.db").stat().st_mode & 0o777 == 0o600
    with BrokerThread(data, overrides=SASL) as broker:
        assert is_let_in(broker.port, "admin", "other")
        assert not is_let_in(broker.port, "admin", "secret")


def test_a_directory_of_no_broker_is_told_and_only_the_first_user_makes_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    for command in (["list"], ["remove", "a"], ["disable", "a"], ["enable", "a"]):
        assert users_here(*command, "--data", str(data)) == 3
        assert "not a data directory of a broker" in capsys.readouterr().err
    assert users_here("password", "a", "--data", str(data), password="secret") == 3
    assert not data.exists()
    capsys.readouterr()
    assert users_here("add", "a", "--data", str(data), password="secret") == 0
    assert f"{data} is new; set the broker's log.dirs to it" in capsys.readouterr().out
    assert users_here("add", "b", "--data", str(data), password="secret") == 0
    assert "is new" not in capsys.readouterr().out


def test_what_root_makes_belongs_to_the_account_of_the_directory(tmp_path: Path) -> None:
    data, secret = tmp_path / "data", tmp_path / "secret"
    data.mkdir()
    secret.write_text("of root")
    (data / "symbolic").symlink_to(secret)
    (data / "hard").hardlink_to(secret)
    before = secret.stat()
    if os.geteuid() == 0:
        # Others make files as themselves anyway.
        os.chown(data, 9092, 9092)
    assert users_here("add", "a", "--data", str(data), password="secret") == 0
    links = {data / "symbolic", data / "hard"}
    made = [path.stat() for path in data.iterdir() if path not in links]
    assert len(made) >= 3
    assert {one.st_uid for one in made} == {data.stat().st_uid}
    assert secret.stat().st_uid == before.st_uid
    with BrokerThread(data, overrides=SASL) as broker:
        assert is_let_in(broker.port, "a", "secret")


def test_a_password_that_is_none_is_refused(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--bootstrap-server", f"127.0.0.1:{broker.port}")
    assert users_here("add", "alice", *where, password="") == 2
    assert users_here("add", "alice", *where, password="secret\nsecret") == 2
    assert users_here("add", "alice", "--iterations", "7", *where, password="secret") == 2
    assert users_here("add", "alice", *where, password="x" * 5000) == 2
    capsys.readouterr()


@pytest.mark.parametrize("command", ["add", "password", "hash"])
def test_without_a_terminal_it_is_told_how_to_give_a_password(
    broker: BrokerThread, command: str
) -> None:
    where = [] if command == "hash" else ["--bootstrap-server", f"127.0.0.1:{broker.port}"]
    if command == "password":
        assert users_here("add", "alice", *where, password="secret") == 0
    ran = subprocess.run(
        [sys.executable, "-m", "kohort.cli", "users", command, "alice", *where],
        check=False,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2
    told = "kohort: no terminal to read the password from; --password-fd 0 reads it from"
    assert ran.stderr == f"{told} standard input\n"
