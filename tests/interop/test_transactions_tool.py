"""Kafka's own tool for transactions (bin/kafka-transactions.sh): it prints the same of a Kafka and
of a Kohort, and ends what hangs on either.
"""

import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import NewTopic

from tests.interop.same_answers.pair import Twins
from tests.interop.tools import ToolResult, Tools
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import admin_client, create_topics
from tests.support.clients.java_transactions import JavaTransactions, read_to_end, values_of
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

NAME = "org.apache.kafka.tools.TransactionsCommand"
OF_THE_MOMENT = {
    "ProducerId",
    "LastTimestamp",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "Duration(min)",
}
"""Columns of which only that there is a number is compared."""

Table = list[dict[str, str]]


def table_of(printed: str) -> Table:
    """Its rows, by the heads of its columns."""
    heads, *rows = [
        [cell.strip() for cell in line.split("\t")] for line in printed.splitlines() if line.strip()
    ]
    return [dict(zip(heads, row, strict=True)) for row in rows]


def plain(table: Table) -> Table:
    return [
        {
            head: "number" if head in OF_THE_MOMENT and cell.isdecimal() else cell
            for head, cell in row.items()
        }
        for row in table
    ]


class Side:
    """A broker with a topic, what the tool tells of it, and a producer's transactions on it."""

    def __init__(
        self, server: ServerProcess, java_clients: JavaProcess, tool_process: JavaProcess, name: str
    ) -> None:
        self.bootstrap = server.bootstrap
        self._process = java_clients
        self._tools = Tools(server.bootstrap, tool_process)
        self.name = name
        admin = admin_client(self.bootstrap)
        create_topics(admin, NewTopic(name, 1, 1))

    def producer(self) -> JavaTransactions:
        return JavaTransactions(self.bootstrap, self._process, self.name)

    def read(self) -> list[str]:
        return values_of(read_to_end(self.bootstrap, self._process, self.name, "read_committed"))

    def attempt(self, *arguments: str) -> ToolResult:
        return self._tools.attempt(NAME, *arguments)

    def run(self, *arguments: str) -> str:
        return self._tools.run(NAME, *arguments)

    def producers(self) -> Table:
        return table_of(self.run("describe-producers", *self._partition()))

    def hanging(self) -> Table:
        """What is open for longer than no minute at all, and whose coordinator knows nothing."""
        limit = ("--max-transaction-timeout", "0")
        return table_of(self.run("find-hanging", *limit, *self._partition()))

    def abort(self, start_offset: int) -> ToolResult:
        return self.attempt("abort", *self._partition(), "--start-offset", str(start_offset))

    def _partition(self) -> tuple[str, ...]:
        return ("--topic", self.name, "--partition", "0")


class Told(NamedTuple):
    """What the tool tells of an id and its partition."""

    listed: Table
    described: Table
    producers: Table
    hanging: Table


def told(side: Side) -> Told:
    return Told(
        plain(table_of(side.run("list", "--transactional-id-pattern", side.name))),
        plain(table_of(side.run("describe", "--transactional-id", side.name))),
        plain(side.producers()),
        plain(side.hanging()),
    )


@pytest.fixture
def sides(twins: Twins, java_clients: JavaProcess, tool_process: JavaProcess) -> list[Side]:
    name = f"tool-{uuid.uuid4().hex[:12]}"
    return [Side(server, java_clients, tool_process, name) for server in twins]


def lived(side: Side) -> Iterator[Told]:
    """What is told of a transaction that is open, and of one that was ended by force."""
    with closing(side.producer()) as producer:
        producer.begin()
        producer.send(side.name, "committed")
        producer.commit()
        wait_until(lambda: side.read() == ["committed"], "the markers are written")
        producer.begin()
        producer.send(side.name, "open")
        yield told(side)
        side.run("forceTerminateTransaction", "--transactionalId", side.name)
        yield told(side)


def test_the_tool_prints_of_a_kohort_what_it_prints_of_a_kafka(sides: list[Side]) -> None:
    kafkas, ours = (list(lived(side)) for side in sides)
    assert ours == kafkas

    is_open, is_over = ours
    assert is_open.listed[0]["TransactionState"] == "Ongoing"
    assert is_open.producers[0]["CurrentTransactionStartOffset"] == "2"
    assert is_open.hanging == []
    assert is_over.listed[0]["TransactionState"] == "Empty"
    assert is_over.producers[0]["CurrentTransactionStartOffset"] == "None"


def test_what_the_tool_asks_for_in_vain_is_refused_in_the_same_words(sides: list[Side]) -> None:
    unknown = ("describe", "--transactional-id", f"{sides[0].name}-unknown")
    pattern = ("list", "--transactional-id-pattern", "((")
    said = []
    for side in sides:
        answers = [side.attempt(*unknown), side.attempt(*pattern), side.abort(0)]
        assert [answer.exit for answer in answers] == [1, 1, 1]
        said.append([re.findall(r"^[A-Z][a-z].*$", answer.err, re.MULTILINE) for answer in answers])
    kafkas, ours = said
    assert ours == kafkas
    assert all(ours)


@pytest.mark.long
@pytest.mark.parametrize("kind", [KohortServer, KafkaServer])
def test_a_transaction_that_its_coordinator_has_forgotten_is_found_and_aborted(
    tmp_path: Path,
    kind: type[KafkaServer | KohortServer],
    java_clients: JavaProcess,
    tool_process: JavaProcess,
) -> None:
    overrides = {"transaction.state.log.num.partitions": "3"}
    with kind(tmp_path, overrides=overrides) as server:
        side = Side(server, java_clients, tool_process, "hanging")
        with closing(side.producer()) as producer:
            producer.begin()
            assert producer.send(side.name, "nobody's") == [0]
        assert server.stop() == server.clean_exit
        for directory in server.data.glob("__transaction_state-*"):
            shutil.rmtree(directory)
        server.start()

        wait_until(lambda: bool(side.hanging()), "it is found")
        (found,) = side.hanging()
        assert (found["Topic"], found["StartOffset"]) == (side.name, "0")
        assert side.abort(0).exit == 0
        assert side.hanging() == []
        assert side.producers()[0]["CurrentTransactionStartOffset"] == "None"
        with closing(side.producer()) as producer:
            producer.begin()
            producer.send(side.name, "somebody's")
            producer.commit()
        wait_until(lambda: side.read() == ["somebody's"], "nothing is held back")
