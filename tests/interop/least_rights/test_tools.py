"""Kafka's own command line tools through TLS and SCRAM, with the rules of docs/access.md alone."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.interop.least_rights.checks import (
    check_needed,
    check_suffice,
    each_need,
    rows_of,
)
from tests.interop.least_rights.needs import named
from tests.interop.least_rights.visitors import (
    VALUES,
    Client,
    Guarded,
    Names,
    ProgramResult,
)
from tests.interop.tools import Tools
from tests.support.clients.confluent_client import QUIET, admin_client
from tests.support.clients.login import Login
from tests.support.processes.java_process import JavaProcess

TOPICS: Final = "org.apache.kafka.tools.TopicCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
ACLS: Final = "org.apache.kafka.tools.AclCommand"
GROUPS: Final = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
PRODUCER: Final = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"


class Tool(NamedTuple):
    """One call of a tool."""

    row: str
    name: str
    """Its class."""
    arguments: str
    """With names as in the document."""
    shows: str = ""
    """What it prints when it has done its work."""
    stdin: str = ""
    filled: Sequence[str] = ()
    empty: Sequence[str] = ()
    has_group: bool = False
    """Whether its group is there, without members, and has read its topic."""
    extra: Sequence[str] = ()

    def client(self, tools: JavaProcess, insider: str) -> Client:
        """`insider` is where the tests prepare what it works on."""
        work = partial(self._work, tools, insider)
        return Client(self.row, work, filled=self.filled, empty=self.empty, extra=self.extra)

    def _work(
        self, tools: JavaProcess, insider: str, login: Login, names: Names, directory: Path
    ) -> ProgramResult:
        if self.has_group:
            commit(insider, names["GROUP"], names["TOPIC"])
        config = str(login.java_file(directory / "client.properties"))
        arguments = named(self.arguments, names).split()
        result = Tools(login.bootstrap, tools).attempt(
            self.name, *arguments, "--command-config", config, stdin=self.stdin
        )
        said = f"{result.out}\n{result.err}"
        return ProgramResult(named(self.shows, names) in result.out and not result.exit, said)


def commit(insider: str, group: str, topic: str) -> None:
    """A group without members, whose lag is 7."""
    position = TopicPartition(topic, 0, len(VALUES) - 7)
    asked = [ConsumerGroupTopicPartitions(group, [position])]
    # It does nothing any more when it is out of sight.
    admin = admin_client(insider)
    (done,) = admin.alter_consumer_group_offsets(asked).values()
    done.result(30)


def exports(login: Login, names: Names, directory: Path) -> ProgramResult:
    """Lists groups, their offsets and the ends of logs, as an exporter of lag does."""
    del directory
    admin = AdminClient({**QUIET, "bootstrap.servers": login.bootstrap, **login.librdkafka()})
    group, topic = names["GROUP"], names["TOPIC"]
    listed = admin.list_consumer_groups().result(30).valid or ()
    if group not in [one.group_id for one in listed]:
        return ProgramResult(is_done=False, said="not listed")
    asked = [ConsumerGroupTopicPartitions(group)]
    (found,) = admin.list_consumer_group_offsets(asked).values()
    positions = {one.topic: one.offset for one in found.result(30).topic_partitions or ()}
    if topic not in positions:
        return ProgramResult(is_done=False, said="no offsets")
    (end,) = admin.list_offsets({TopicPartition(topic, 0): OffsetSpec.latest()}).values()
    return ProgramResult(end.result(30).offset - positions[topic] == 7, "")


TOOLS: Final = {
    "console producer": Tool(
        "producer, idempotent or not",
        PRODUCER,
        "--topic TOPIC --sync",
        stdin="value\n",
        empty=["TOPIC"],
    ),
    "console consumer": Tool(
        "consumer in a group",
        CONSUMER,
        "--topic TOPIC --group GROUP --from-beginning --max-messages 1 --timeout-ms 20000",
        shows="0",
        filled=["TOPIC"],
    ),
    "console consumer alone": Tool(
        "`kafka-console-consumer.sh` without `--group`, which makes up one",
        CONSUMER,
        "--topic TOPIC --from-beginning --max-messages 1 --timeout-ms 20000",
        shows="0",
        filled=["TOPIC"],
    ),
    "create a topic": Tool(
        "`kafka-topics.sh --create`", TOPICS, "--create --topic TOPIC", shows="Created topic TOPIC"
    ),
    "describe a topic": Tool(
        "`kafka-topics.sh --describe`",
        TOPICS,
        "--describe --topic TOPIC",
        shows="PartitionCount: 1",
        empty=["TOPIC"],
    ),
    "alter a topic": Tool(
        "`kafka-configs.sh --alter` of a topic",
        CONFIGS,
        "--alter --topic TOPIC --add-config retention.ms=5",
        shows="Completed updating config",
        empty=["TOPIC"],
    ),
    "set a password": Tool(
        "`kafka-configs.sh --alter` of a user's password",
        CONFIGS,
        "--alter --entity-type users --entity-name bob --add-config SCRAM-SHA-256=[password=b]",
        shows="Completed updating config",
    ),
    "set a quota": Tool(
        "`kafka-configs.sh --alter` of a quota",
        CONFIGS,
        "--alter --entity-type users --entity-name bob --add-config consumer_byte_rate=10000000",
        shows="Completed updating config",
    ),
    "list rules": Tool("`kafka-acls.sh --list`", ACLS, "--list", shows="Current ACLs"),
    "add a rule": Tool(
        "`kafka-acls.sh --add`",
        ACLS,
        "--add --allow-principal User:bob --operation Read --topic for-bob",
        shows="Adding ACLs",
    ),
    "list groups": Tool(
        "`kafka-consumer-groups.sh --list`, all groups",
        GROUPS,
        "--list",
        shows="GROUP",
        filled=["TOPIC"],
        has_group=True,
        extra=["GROUP"],
    ),
    "describe a group": Tool(
        "`kafka-consumer-groups.sh --describe`",
        GROUPS,
        "--describe --group GROUP",
        shows="TOPIC",
        filled=["TOPIC"],
        has_group=True,
    ),
    "reset a group": Tool(
        "`kafka-consumer-groups.sh --reset-offsets`",
        GROUPS,
        "--reset-offsets --group GROUP --topic TOPIC --to-earliest --execute",
        shows="TOPIC",
        filled=["TOPIC"],
        has_group=True,
    ),
    "delete a group": Tool(
        "`kafka-consumer-groups.sh --delete`",
        GROUPS,
        "--delete --group GROUP",
        shows="was successful",
        filled=["TOPIC"],
        has_group=True,
    ),
}


def exporter(insider: str) -> Client:
    def work(login: Login, names: Names, directory: Path) -> ProgramResult:
        commit(insider, names["GROUP"], names["TOPIC"])
        return exports(login, names, directory)

    return Client("exporters of all groups' lag", work, filled=["TOPIC"], extra=["GROUP"])


pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", TOOLS)
def test_a_tool_needs_no_more_than_the_document_says(
    guarded: Guarded, tool_process: JavaProcess, name: str, tmp_path: Path
) -> None:
    client = TOOLS[name].client(tool_process, guarded.broker.bootstrap)
    check_suffice(guarded, client, "SCRAM-SHA-256", tmp_path)


@each_need(rows_of(TOOLS))
def test_a_tool_is_denied_without_any_of_its_rules(
    guarded: Guarded, tool_process: JavaProcess, name: str, number: int, tmp_path: Path
) -> None:
    client = TOOLS[name].client(tool_process, guarded.broker.bootstrap)
    check_needed(guarded, client, number, tmp_path)


def test_an_exporter_needs_no_more_than_the_document_says(guarded: Guarded, tmp_path: Path) -> None:
    check_suffice(guarded, exporter(guarded.broker.bootstrap), "SCRAM-SHA-256", tmp_path)


@pytest.mark.parametrize("number", [0, 1])
def test_an_exporter_sees_less_without_any_of_its_rules(
    guarded: Guarded, number: int, tmp_path: Path
) -> None:
    check_needed(guarded, exporter(guarded.broker.bootstrap), number, tmp_path)
