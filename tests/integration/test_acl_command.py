"""`kohort acl` on a running broker."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.cli import main
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.processes.commands import users_here

OPEN = {"authorizer.class.name": "kohort", "allow.everyone.if.no.acl.found": "true"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path, overrides=OPEN) as made:
        yield made


def run(broker: BrokerThread, *arguments: str) -> int:
    return main(["acl", *arguments, "--bootstrap-server", f"127.0.0.1:{broker.port}"])


def test_rules_are_added_listed_checked_and_removed(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(broker, "add", "alice", "read", "topic:in-", "--prefixed") == 0
    assert run(broker, "add", "alice", "read", "topic:in-secret", "--deny") == 0
    capsys.readouterr()
    assert run(broker, "list", "--resource", "topic:in-1", "--matching", "--json") == 0
    (rule,) = json.loads(capsys.readouterr().out)["rules"]
    assert (rule["principal"], rule["pattern"]) == ("User:alice", "PREFIXED")
    assert run(broker, "check", "alice", "read", "describe", "topic:in-1") == 0
    told = capsys.readouterr().out
    assert "READ: yes (ALLOW User:alice READ on prefixed TOPIC" in told
    assert run(broker, "check", "alice", "read", "topic:in-secret") == 1
    assert "READ: no (DENY User:alice READ" in capsys.readouterr().out
    assert run(broker, "check", "alice", "write", "topic:in-1") == 1
    assert "WRITE: no (no rule of the matching patterns applies)" in capsys.readouterr().out
    assert run(broker, "remove", "--principal", "alice") == 0
    assert run(broker, "remove", "--principal", "alice") == 1
    assert run(broker, "check", "alice", "read", "topic:in-1") == 1


def test_who_may_read_everything_is_warned_of_internal_topics(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(broker, "add", "bob", "read", "topic:*") == 0
    assert run(broker, "check", "bob", "read", "topic:t") == 0
    assert "Warning: User:bob may read __consumer_offsets" in capsys.readouterr().out


@pytest.mark.parametrize("written", ["::1", "0:0:0:0:0:0:0:1", "0::0:1"])
def test_a_rule_for_an_address_of_ipv6_applies_however_it_is_written(
    tmp_path: Path, written: str
) -> None:
    overrides = {**OPEN, "listeners": "PLAINTEXT://127.0.0.1:0,SIX://[::1]:0"}
    overrides["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SIX:PLAINTEXT"
    with BrokerThread(tmp_path, overrides=overrides) as broker:
        six = broker.call(lambda: broker.broker.services.advertised_by_listener["SIX"][1])
        by_six = ["acl", "list", "--bootstrap-server", f"[::1]:{six}"]
        # A rule that matches shuts out all others, so that there has to be one that allows.
        assert run(broker, "add", "*", "all", "cluster") == 0
        assert main(by_six) == 0
        assert run(broker, "add", "*", "all", "cluster", "--deny", "--host", written) == 0
        assert main(by_six) == 4
        assert run(broker, "list") == 0
        assert run(broker, "check", "bob", "alter", "cluster", "--host", written) == 1


@pytest.mark.parametrize("host", ["broker.example.com", "10.0.0.0/8", ""])
def test_a_host_that_no_rule_can_have_is_refused(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str], host: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(broker, "add", "alice", "read", "topic:t", "--host", host)
    assert ended.value.code == 2
    assert "is not a numeric address" in capsys.readouterr().err


def test_a_principal_that_no_client_can_be_is_refused(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(broker, "add", "user:alice", "read", "topic:t")
    assert "must begin with User: (case-sensitive)" in capsys.readouterr().err


def test_who_may_not_see_rules_is_told_what_is_missing(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(broker, "add", "ANONYMOUS", "describe", "cluster", "--deny") == 0
    assert run(broker, "list") == 4
    told = capsys.readouterr().err
    assert "CLUSTER_AUTHORIZATION_FAILED" in told
    assert "User:ANONYMOUS, which is not authorized for that; `kohort acl add` adds a rule" in told
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=PLAINTEXT")
    assert run(broker, "list", "--command-config", str(file)) == 4
    assert f"The user of {file} is not authorized for that" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "describe", "t"),
        ("topics", "create", "t"),
        ("topics", "delete", "t"),
        ("consume", "t", "--exit", "--from-beginning"),
        ("groups", "describe", "g"),
        ("groups", "why", "g"),
        ("groups", "delete", "g"),
    ],
    ids=" ".join,
)
def test_a_denied_client_is_told_of_the_missing_right_not_of_a_missing_topic(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    for resource in ("topic:*", "group:*", "cluster"):
        assert run(broker, "add", "ANONYMOUS", "all", resource, "--deny") == 0
    assert main([*command, "--bootstrap-server", f"127.0.0.1:{broker.port}"]) == 4
    told = capsys.readouterr().err
    assert "_AUTHORIZATION_FAILED" in told
    assert "`kohort acl add` adds a rule" in told


def test_a_broker_without_an_authorizer_is_told_how_to_have_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BrokerThread(tmp_path) as broker:
        assert run(broker, "add", "alice", "read", "topic:t") == 4
    told = capsys.readouterr().err
    assert "SECURITY_DISABLED" in told
    assert "To get one, set authorizer.class.name=kohort and super.users" in told


def test_a_rule_for_a_user_that_there_is_not_is_told(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "Warning: no user is called"
    assert run(broker, "add", "alcie", "read", "topic:t") == 0
    assert told not in capsys.readouterr().out, "there are no users with passwords at all"
    where = ("--bootstrap-server", f"127.0.0.1:{broker.port}")
    assert users_here("add", "alice", *where, password="secret") == 0
    capsys.readouterr()
    assert run(broker, "add", "alcie", "read", "topic:t") == 0
    assert f"{told} alcie;" in capsys.readouterr().out
    for known in ("alice", "*", "ANONYMOUS", "User:CN=alice,OU=shop"):
        assert run(broker, "add", known, "read", "topic:t") == 0
        assert told not in capsys.readouterr().out


def test_what_nothing_asks_for_is_told(
    broker: BrokerThread, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(broker, "add", "alice", "write", "read", "all", "group:g") == 0
    assert capsys.readouterr().out.count("Warning: no request needs WRITE on a GROUP") == 1
    assert run(broker, "check", "alice", "write", "cluster") == 1
    told = capsys.readouterr()
    assert "no request needs WRITE on a CLUSTER; the operations are ALL, CREATE" in told.out
    assert "--super-users" in told.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "alice", "read", "table:t"),
        ("add", "alice", "drink", "topic:t"),
    ],
    ids=["no such type", "no such operation"],
)
def test_what_cannot_be_meant_is_refused(broker: BrokerThread, arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(broker, *arguments)


def test_rules_are_not_removed_unless_it_is_said_which(broker: BrokerThread) -> None:
    assert run(broker, "remove") == 2


def test_without_an_authorizer_there_are_no_rules(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with BrokerThread(tmp_path) as broker:
        assert run(broker, "list") == 4
        assert "SECURITY_DISABLED" in capsys.readouterr().err
