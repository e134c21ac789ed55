"""Kafka's own tools for rules, users and limits, through TLS and SCRAM: they print the same when
they are pointed at a real Kafka and at this broker.
"""

import re
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.interop.same_answers.pair import Twins
from tests.interop.same_answers.secured import start_secured
from tests.interop.tools import ToolResult, Tools
from tests.support.brokers.certificates import Authority
from tests.support.brokers.secure_kafka import PASSWORD, USER, SecureKafka
from tests.support.brokers.secure_kohort import SecureKohort
from tests.support.clients.login import Login
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

ACLS: Final = "org.apache.kafka.tools.AclCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
CLIENT_METRICS: Final = "org.apache.kafka.tools.ClientMetricsCommand"
EVENTUALLY_S: Final = 20


class Said(NamedTuple):
    """What a tool said, as far as it can be compared."""

    exit: int
    out: Sequence[str]
    """Its lines, sorted: tools print most of them in the order of a hash table."""
    errors: Sequence[str]
    """Classes of exceptions: what they say is for people, and each broker says it in its words."""


class Both:
    """The tools, pointed at both brokers as their super user."""

    def __init__(self, twins: Twins, process: JavaProcess, directory: Path) -> None:
        self.servers: dict[str, SecureKafka | SecureKohort] = {}
        self._tools: dict[str, Tools] = {}
        self._configs: dict[str, str] = {}
        for name, server in twins._asdict().items():
            assert isinstance(server, SecureKafka | SecureKohort)
            bootstrap = f"127.0.0.1:{server.ports['SASL_SSL']}"
            login = Login(bootstrap, server.authority.certificate, USER, PASSWORD)
            self.servers[name] = server
            self._tools[name] = Tools(bootstrap, process)
            self._configs[name] = str(login.java_file(directory / f"{name}.properties"))

    def ask(self, side: str, tool: str, *arguments: str) -> ToolResult:
        return self._tools[side].attempt(tool, *arguments, "--command-config", self._configs[side])

    def run(self, tool: str, *arguments: str) -> list[Said]:
        """What it says of each broker."""
        answers = []
        for side, server in self.servers.items():
            result = self.ask(side, tool, *arguments)
            print(side, arguments, result)
            answers.append(said(tool, result, str(server.directory)))
        return answers

    def check(self, tool: str, line: str) -> Said:
        """Say the same, be it that it failed. What it prints may be old at first on Kafka."""
        kafka, kohort = self.run(tool, *words(line))
        assert kafka == kohort, f"{line}\n{kafka}\n{kohort}"
        return kafka

    def wait_same(self, tool: str, line: str) -> Said:
        """The same as soon as Kafka's broker knows what its controller has answered."""
        deadline = time.monotonic() + EVENTUALLY_S
        while True:
            kafka, kohort = self.run(tool, *words(line))
            if kafka == kohort:
                return kafka
            assert time.monotonic() < deadline, f"{line}\n{kafka}\n{kohort}"
            time.sleep(0.1)


def words(line: str) -> list[str]:
    return line.split()


def said(tool: str, result: ToolResult, directory: str) -> Said:
    text = result.out.replace(directory, "DIRECTORY")
    if tool == ACLS:
        # It lists the rules after a change: those of a Kafka may still be the old ones.
        changed, _, _ = text.partition("Current ACLs")
        text = changed if changed.strip() else text
    found = re.findall(r"(?m)^(?:[\w.]+(?:Exception|Error)\b(?:: |$))+", result.err + result.out)
    lines = [in_order(line) for line in text.splitlines() if "Exception" not in line]
    return Said(result.exit, sorted(lines), found)


def in_order(line: str) -> str:
    """Settings of one line, which come in the order of the answer: a hash table's."""
    begin, are, settings = line.partition(" are ")
    return begin + are + ", ".join(sorted(settings.split(", ")))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, tool_process: JavaProcess) -> Iterator[Both]:
    """On brokers of their own: a rule for all topics denies them to principals without rules."""
    directory = tmp_path_factory.mktemp("secured")
    with start_secured(directory) as twins:
        yield Both(twins, tool_process, directory)


CHANGES_OF_RULES: Final = (
    "--add --allow-principal User:bob --operation Read --operation Write --topic t",
    "--add --deny-principal User:eve --deny-host 10.0.0.9 --operation All --topic t",
    (
        "--add --producer --idempotent --allow-principal User:carol --topic p-"
        " --transactional-id tx --resource-pattern-type prefixed"
    ),
    "--add --consumer --allow-principal User:dave --topic t --group g",
    "--add --allow-principal User:ops --operation Alter --operation Describe --cluster",
    # Not as it should be.
    "--add --allow-principal User:bob --operation IdempotentWrite --topic t",
    "--add --allow-principal bob --operation Read --topic t",
    "--add --allow-principal User:bob --operation Read",
    # Gone again.
    "--remove --force --allow-principal User:bob --operation Write --topic t",
    "--remove --force --allow-principal User:nobody --operation Read --topic t",
    "--remove --force --topic p-1 --resource-pattern-type match",
    "--remove --force --consumer --allow-principal User:dave --topic t --group g",
    (
        "--add --allow-principal User:bob --allow-host 10.0.0.1 --allow-host 10.0.0.2"
        " --operation Read --group g"
    ),
    "--add --deny-principal User:* --operation Delete --topic t --topic other",
    "--add --allow-principal User:CN=x,OU=y --operation Describe --topic *",
    (
        "--add --producer --idempotent --allow-principal User:carol --topic p-"
        " --transactional-id tx --resource-pattern-type prefixed"
    ),
    "--add --producer --consumer --allow-principal User:dan --topic t --group g",
    "--add --allow-principal User:ops --operation Describe --delegation-token abc",
    "--add --allow-principal User:ops --operation CreateTokens --user-principal User:bob",
    "--add --allow-principal User:ops --operation TwoPhaseCommit --transactional-id tx",
    # Not as it should be.
    "--add --allow-principal User:bob --operation Nonsense --topic t",
    "--add --operation Read --topic t",
    "--add --consumer --allow-principal User:bob --topic t",
    "--add --allow-principal User:bob --operation Read --topic t --resource-pattern-type match",
    # Gone again, one by one and all of a name.
    "--remove --force --deny-principal User:eve --deny-host 10.0.0.9 --operation All --topic t",
    "--remove --force --transactional-id tx --resource-pattern-type prefixed",
    "--remove --force --topic p- --resource-pattern-type any",
    "--remove --force --topic t",
    "--remove --force --group g --resource-pattern-type any",
)
LISTS_OF_RULES: Final = (
    "--list",
    "--list --topic t",
    "--list --topic p-1 --resource-pattern-type match",
    "--list --topic p- --resource-pattern-type prefixed",
    "--list --topic p- --resource-pattern-type literal",
    "--list --topic p- --resource-pattern-type any",
    "--list --topic *",
    "--list --group g --topic t",
    "--list --cluster",
    "--list --principal User:bob",
    "--list --principal User:bob --principal User:carol --topic t",
)


def test_rules_are_added_listed_and_removed_alike(both: Both) -> None:
    for number, change in enumerate(CHANGES_OF_RULES):
        both.check(ACLS, change)
        both.wait_same(ACLS, "--list")
        if number % 6 == 4:
            for listed in LISTS_OF_RULES:
                both.wait_same(ACLS, listed)
    assert any("User:ops" in line for line in both.wait_same(ACLS, "--list").out)


BOB: Final = "--entity-type users --entity-name bob"
CHANGES_OF_USERS: Final = (
    f"--alter {BOB} --add-config SCRAM-SHA-256=[iterations=8192,password=one]",
    f"--alter {BOB} --add-config SCRAM-SHA-512=[password=two],producer_byte_rate=1000",
    f"--alter {BOB} --add-config SCRAM-SHA-256=[iterations=100,password=one]",
    "--alter --user bob --client c --add-config producer_byte_rate=6000",
    "--alter --user-defaults --add-config consumer_byte_rate=4000",
    "--alter --ip 10.0.0.1 --add-config connection_creation_rate=10",
    f"--alter {BOB} --add-config producer_byte_rate=0",
    f"--alter {BOB} --add-config no_such_rate=1",
    f"--alter {BOB} --delete-config SCRAM-SHA-256,producer_byte_rate",
    "--alter --ip 10.0.0.1 --delete-config connection_creation_rate",
    f"--alter {BOB} --add-config SCRAM-SHA-256=[iterations=8192,password=one]",
    f"--alter {BOB} --add-config SCRAM-SHA-256=[iterations=99999,password=one]",
    f"--alter {BOB} --add-config SCRAM-SHA-1=[password=one]",
    "--alter --user eve --add-config SCRAM-SHA-256=[password=three]",
    "--alter --entity-type users --entity-default --add-config SCRAM-SHA-256=[password=four]",
    f"--alter {BOB} --add-config producer_byte_rate=2000,consumer_byte_rate=3000",
    f"--alter {BOB} --add-config request_percentage=12.5,controller_mutation_rate=2.5",
    "--alter --client c --add-config producer_byte_rate=5000",
    "--alter --client-defaults --add-config request_percentage=200",
    "--alter --user bob --client-defaults --add-config producer_byte_rate=7000",
    "--alter --user-defaults --client-defaults --add-config producer_byte_rate=8000",
    "--alter --ip 10.0.0.1 --add-config connection_creation_rate=10",
    "--alter --ip-defaults --add-config connection_creation_rate=20",
    f"--alter {BOB} --add-config producer_byte_rate=abc",
    f"--alter {BOB} --add-config producer_byte_rate=-1",
    f"--alter {BOB} --add-config connection_creation_rate=1",
    "--alter --ip 10.0.0.1 --add-config producer_byte_rate=1",
    "--alter --ip 10.0.0.1 --add-config connection_creation_rate=0.5",
    f"--alter {BOB} --delete-config SCRAM-SHA-256",
    f"--alter {BOB} --delete-config SCRAM-SHA-256",
    f"--alter {BOB} --delete-config request_percentage",
    f"--alter {BOB} --delete-config no_such_rate",
    "--alter --user eve --delete-config SCRAM-SHA-256",
    "--alter --user-defaults --client-defaults --delete-config producer_byte_rate",
)
LISTS_OF_USERS: Final = (
    "--describe --entity-type users",
    f"--describe {BOB}",
    "--describe --user eve",
    "--describe --user nobody",
    "--describe --entity-type users --entity-default",
    "--describe --entity-type clients",
    "--describe --client c",
    "--describe --user bob --client c",
    "--describe --entity-type users --entity-type clients",
    "--describe --entity-type ips",
    "--describe --ip 10.0.0.1",
    "--describe --ip-defaults",
)


def test_users_and_limits_are_changed_and_described_alike(both: Both) -> None:
    count = len(LISTS_OF_USERS)
    for number, change in enumerate(CHANGES_OF_USERS):
        both.check(CONFIGS, change)
        turn = slice(None) if number % 8 == 6 else slice(number % count, number % count + 1)
        for listed in LISTS_OF_USERS[turn]:
            both.wait_same(CONFIGS, listed)
    last = [both.wait_same(CONFIGS, one) for one in LISTS_OF_USERS]
    assert any("SCRAM-SHA-512" in line for said in last for line in said.out)


OF_THE_BROKER: Final = "--entity-type brokers --entity-name 1"
KEY_STORE: Final = "listener.name.ssl.ssl.keystore.location"


def shows_certificate_of(port: int, authority: Authority) -> bool:
    """Whether this listener shows a certificate that the authority has signed."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
        try:
            context.wrap_socket(plain, server_hostname="127.0.0.1").close()
        except ssl.SSLCertVerificationError:
            return False
    return True


def test_a_key_store_is_changed_alike(both: Both, tmp_path: Path) -> None:
    other = Authority(tmp_path)
    stores = {name: other.issue(name, "IP:127.0.0.1") for name in ("broker", "stranger")}
    described = f"--describe {OF_THE_BROKER}"

    def change(path: Path) -> Said:
        return both.check(CONFIGS, f"--alter {OF_THE_BROKER} --add-config {KEY_STORE}={path}")

    def shown() -> list[bool]:
        ports = [server.ports["SSL"] for server in both.servers.values()]
        return [shows_certificate_of(port, other) for port in ports]

    assert shown() == [False, False]
    assert change(tmp_path / "missing.pem").exit == 1
    assert change(stores["stranger"]).exit == 1
    both.wait_same(CONFIGS, described)
    assert shown() == [False, False]
    assert change(stores["broker"]).exit == 0
    wait_until(lambda: shown() == [True, True], "both show the new one")
    found = both.wait_same(CONFIGS, described)
    assert any(KEY_STORE in line for line in found.out)
    gone = both.check(CONFIGS, f"--alter {OF_THE_BROKER} --delete-config {KEY_STORE}")
    assert gone.exit == 0
    wait_until(lambda: shown() == [False, False], "both show the old one again")


def test_subscriptions_to_metrics_of_clients_are_refused_in_words(both: Both) -> None:
    for listed in ("--list", "--describe"):
        assert both.check(CLIENT_METRICS, listed).exit == 0
    for change in (
        "--alter --name x --metrics org.apache.kafka --interval 1000",
        "--delete --name x",
    ):
        told = both.ask("kohort", CLIENT_METRICS, *words(change))
        if isinstance(both.servers["kohort"], SecureKafka):
            assert told.exit == 0
            continue
        assert told.exit == 1
        assert "Configs of type CLIENT_METRICS cannot be set on this broker." in told.out + told.err
        assert "\tat " not in told.out + told.err
    assert both.check(CLIENT_METRICS, "--list").exit == 0
