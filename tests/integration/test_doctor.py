"""`kohort doctor` sees what keeps a broker from starting, before it is started."""

import json
import socket
from pathlib import Path

import pytest

from kohort.broker.app import StartError
from kohort.broker.storage.layout import KAFKA_FILE
from kohort.cli import main
from kohort.cli.doctor import OK, PROBLEM, WARNING, Finding, examine
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.brokers.certificates import Authority


def settings(directory: Path, port: int = 0) -> list[str]:
    return [
        f"log.dirs={directory}",
        f"listeners=PLAINTEXT://127.0.0.1:{port}",
        "kohort.metrics.port=-1",
        "kohort.console.port=-1",
    ]


def problems(overrides: list[str]) -> list[Finding]:
    return [one for one in examine(None, overrides) if one.verdict == PROBLEM]


def test_where_nothing_is_in_the_way_there_is_no_problem(tmp_path: Path) -> None:
    assert problems(settings(tmp_path / "data")) == []
    assert not (tmp_path / "data").exists()


def test_a_broker_that_runs_has_the_data_and_the_port(tmp_path: Path) -> None:
    with BrokerThread(tmp_path) as broker:
        found = problems(settings(tmp_path, broker.port))
    assert [one.what for one in found] == ["data", "listener PLAINTEXT"]
    assert "in use by a broker" in found[0].text
    assert problems(settings(tmp_path)) == []


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        (found,) = problems(settings(tmp_path, taken.getsockname()[1]))
    assert "in use" in found.text


@pytest.mark.parametrize("what", ["metrics", "console"])
def test_a_port_that_was_set_must_be_free(tmp_path: Path, what: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        given = [f"kohort.{what}.host=127.0.0.1", f"kohort.{what}.port={port}"]
        (found,) = problems([*settings(tmp_path), *given])
    assert (found.what, "in use" in found.text) == (what, True)


def test_a_place_for_data_where_nothing_can_be_created_is_told() -> None:
    (found,) = problems(settings(Path("/proc/kohort")))
    assert found.what == "data"


def test_a_place_for_data_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (found,) = problems(settings(tmp_path / "file" / "data"))
    assert found.what == "data"


def test_settings_that_cannot_be_used_are_told_and_the_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--override", "num.partition=3", "--json"]
    assert main(["doctor", *given]) == 1
    told = json.loads(capsys.readouterr().out)
    assert any(one["what"] == "settings" and "num.partition" in one["text"] for one in told)


def test_what_is_compiled_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    options = [word for one in settings(tmp_path) for word in ("--override", one)]
    assert main(["doctor", *options]) == 0
    told = capsys.readouterr().out
    assert told.count(" compiled  ") == 3
    assert OK in told


def test_certificates_and_users_are_looked_at_as_a_start_does(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    store = authority.issue("broker", "DNS:localhost")
    store.chmod(0o600)
    users = tmp_path / "users"
    users.write_text("alice:nonsense")
    given = [
        *settings(tmp_path / "data"),
        "listeners=SSL://127.0.0.1:0,EXT://127.0.0.2:0",
        "advertised.listeners=SSL://localhost:9093,EXT://broker.example.com:9094",
        "listener.security.protocol.map=SSL:SSL,EXT:SASL_SSL",
        "sasl.enabled.mechanisms=PLAIN",
        f"ssl.keystore.location={store}",
        f"kohort.users.file={users}",
    ]
    found = {one.what: one for one in examine(None, given)}
    assert found["certificate SSL"].verdict == OK
    assert found["certificate SSL"].text.startswith("CN=broker, until ")
    assert found["certificate EXT"].verdict == WARNING
    assert "EXT advertises broker.example.com, but" in found["certificate EXT"].text
    assert found["users"].verdict == PROBLEM
    assert "line 1" in found["users"].text
    users.write_text("")
    users.chmod(0o644)
    store.write_bytes((authority.directory / "broker.crt").read_bytes())
    rules = "ssl.principal.mapping.rules=RULE:("
    own = f"listener.name.ext.ssl.keystore.location={authority.directory / 'broker.pem'}"
    found = {one.what: one for one in examine(None, [*given, rules, own])}
    assert found["certificate SSL"].verdict == PROBLEM
    assert "has no private key" in found["certificate SSL"].text
    assert found["users"].verdict == WARNING
    store.write_bytes((authority.directory / "broker.key").read_bytes() + store.read_bytes())
    found = {one.what: one for one in examine(None, [*given, rules])}
    assert "ssl.principal.mapping.rules" in found["certificate SSL"].text


def test_a_directory_of_kafka_is_a_problem_as_for_a_start(tmp_path: Path) -> None:
    (tmp_path / KAFKA_FILE).write_text("version=1\n")
    (found,) = problems(settings(tmp_path))
    assert found.what == "data"
    assert "import-kafka" in found.text
    with pytest.raises(StartError, match="import-kafka"), BrokerThread(tmp_path):
        pass
