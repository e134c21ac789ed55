"""__consumer_offsets as tools that read it see it: Kafka's formatters, and readers like Burrow."""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from kafka import KafkaConsumer

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


def test_a_reader_that_knows_the_format_finds_the_positions(
    bootstrap: str, committed: Committed, group: str
) -> None:
    """Read as Burrow does: key version 0 or 1 is a position; the value begins with the offset."""
    consumer = KafkaConsumer(
        OFFSETS,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        exclude_internal_topics=False,
        consumer_timeout_ms=SHOWN_WITHIN_MS,
    )
    positions: dict[tuple[str, int], int] = {}
    for record in consumer:
        version, *names, partition = _key(record.key) if record.key else (-1, "", "", 0)
        if version in {0, 1} and names[0] == group and record.value:
            _, offset = struct.unpack_from(">hq", record.value)
            positions[names[1], partition] = offset
        if len(positions) == 2:
            break
    consumer.close()
    assert positions == {(committed.topic, 0): 5, (committed.topic, 1): 5}


def _key(key: bytes) -> tuple[Any, ...]:
    """(version, group, topic, partition) of a position; of other records only the version."""
    (version,) = struct.unpack_from(">h", key)
    if version not in {0, 1}:
        return version, "", "", 0
    group, position = _text(key, 2)
    topic, position = _text(key, position)
    return version, group, topic, struct.unpack_from(">i", key, position)[0]


def _text(data: bytes, position: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, position)
    position += 2
    return data[position : position + size].decode(), position + size
