"""__consumer_offsets as Kafka's formatters show it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.interop.conftest import ClientNamed, CreateTopic
from tests.interop.tools import Tools
from tests.support.clients.model import Record
from tests.support.waiting import wait_until

OFFSETS = "__consumer_offsets"
SHOWN_WITHIN_MS = 30_000
"""Without a record for so long a reader gives up."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A topic that a group has committed to, and where the group's records are."""

    topic: str
    partition: int
    end: int


@pytest.fixture
def committed(
    client_named: ClientNamed, create_topic: CreateTopic, group: str, admin: AdminClient
) -> Committed:
    """A member of the group has read ten records of two partitions and committed, and left."""
    topic = create_topic(partitions=2)
    client = client_named("confluent")
    client.produce(topic, [Record(b"%d" % number, partition=number % 2) for number in range(10)])
    before = ends_of_offsets(admin)
    with client.join(group, topic) as member:
        wait_until(lambda: len(member.records()) == 10, "everything read")
    after = ends_of_offsets(admin)
    (grown,) = (one for one, end in after.items() if end > before.get(one, 0))
    return Committed(topic, grown, after[grown])


def ends_of_offsets(admin: AdminClient) -> dict[int, int]:
    """Where the partitions of __consumer_offsets end; none before it is there."""
    metadata = admin.list_topics(timeout=30).topics.get(OFFSETS)
    if metadata is None:
        return {}
    asked = {TopicPartition(OFFSETS, one): OffsetSpec.latest() for one in metadata.partitions}
    found = admin.list_offsets(asked, request_timeout=30)
    return {place.partition: future.result(30).offset for place, future in found.items()}


def formatted(
    tools: Tools, formatter: str, group: str, committed: Committed
) -> list[dict[str, Any]]:
    """What the console consumer prints of a group's records, oldest first. It reads what is there,
    and does not wait to see whether more comes.
    """
    shown = tools.attempt(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--topic", OFFSETS, "--partition", str(committed.partition), "--offset", "earliest"),
        *("--timeout-ms", str(SHOWN_WITHIN_MS), "--max-messages", str(committed.end)),
        *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
    )
    rows = list(_documents(shown.out))
    assert rows, shown.err
    return [row for row in rows if row["key"]["data"]["group"] == group]


def _documents(text: str) -> Iterator[dict[str, Any]]:
    """They stand one after the other, without anything in between."""
    decoder, position = json.JSONDecoder(), 0
    while (position := text.find("{", position)) >= 0:
        document, position = decoder.raw_decode(text, position)
        yield document


def test_kafkas_formatter_of_offsets_shows_what_was_committed(
    tools: Tools, committed: Committed, group: str
) -> None:
    rows = formatted(tools, "OffsetsMessageFormatter", group, committed)

    positions = {
        (row["key"]["data"]["topic"], row["key"]["data"]["partition"]): row["value"]["data"][
            "offset"
        ]
        for row in rows
    }
    assert positions == {(committed.topic, 0): 5, (committed.topic, 1): 5}


def test_kafkas_formatter_of_groups_shows_members_and_then_none(
    tools: Tools, committed: Committed, group: str
) -> None:
    shown = formatted(tools, "GroupMetadataMessageFormatter", group, committed)
    rows = [row["value"]["data"] for row in shown]

    with_members = [row for row in rows if row["members"]]
    assert with_members
    assert with_members[-1]["protocolType"] == "consumer"
    assert with_members[-1]["protocol"] == "range"
    assert with_members[-1]["generation"] == 1
    (member,) = with_members[-1]["members"]
    assert member["clientHost"] == "/127.0.0.1"
    assert (rows[-1]["members"], rows[-1]["generation"]) == ([], 2)
