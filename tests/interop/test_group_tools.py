"""Group administration with Kafka's own command line classes."""

import re

import pytest

from tests.interop.conftest import ClientNamed, CreateTopic
from tests.interop.tools import Tools
from tests.support.clients.model import Client, Record
from tests.support.waiting import wait_until


@pytest.fixture
def read_topic(client_named: ClientNamed, create_topic: CreateTopic, group: str) -> str:
    """A topic of two partitions with ten records each, all read and committed by the group."""
    topic = create_topic(partitions=2)
    client = client_named("confluent")
    client.produce(topic, [Record(b"%d" % number, partition=number % 2) for number in range(20)])
    with client.join(group, topic) as member:
        wait_until(lambda: len(member.records()) == 20, "everything read")
    return topic


def offsets(tools: Tools, group: str, topic: str) -> dict[int, list[str]]:
    """By partition: committed offset, log end offset, lag, as --describe shows them."""
    shown = tools.consumer_groups("--describe", "--group", group)
    pattern = rf"^{group}\s+{topic}\s+(\d+)\s+(\S+)\s+(\S+)\s+(\S+)"
    rows = re.findall(pattern, shown, re.MULTILINE)
    return {int(partition): list(row) for partition, *row in rows}


def test_a_group_is_listed_and_described_with_its_members(
    client: Client, tools: Tools, create_topic: CreateTopic, group: str
) -> None:
    topic = create_topic(partitions=2)
    client.produce(topic, [Record(b"0"), Record(b"1", partition=1)])

    with client.join(group, topic) as member:
        wait_until(lambda: len(member.records()) == 2, "everything read")
        states = tools.consumer_groups("--list", "--state")
        members = tools.consumer_groups("--describe", "--members", "--verbose", "--group", group)
        state = tools.consumer_groups("--describe", "--state", "--group", group)

    assert re.search(rf"{group}\s+Stable", states)
    assert re.search(rf"{group}\s+\S+\s+/127\.0\.0\.1\s+\S+\s+2\s", members)
    assert re.search(r"\brange\s+Stable\s.*\b1\s*$", state, re.MULTILINE)


def test_a_group_without_members_is_empty_and_shows_its_lag(
    client_named: ClientNamed, tools: Tools, read_topic: str, group: str
) -> None:
    client_named("confluent").produce(read_topic, [Record(b"late"), Record(b"later")])

    assert offsets(tools, group, read_topic) == {0: ["10", "12", "2"], 1: ["10", "10", "0"]}
    states = tools.consumer_groups("--list", "--state", "Empty")
    assert re.search(rf"{group}\s+Empty", states)


@pytest.mark.parametrize(
    ("scenario", "committed"),
    [
        (("--to-earliest",), ["0", "0"]),
        (("--to-latest",), ["10", "10"]),
        (("--to-offset", "7"), ["7", "7"]),
        (("--shift-by", "-3"), ["7", "7"]),
        (("--to-offset", "99"), ["10", "10"]),
    ],
    ids=["earliest", "latest", "offset", "shift", "beyond the end"],
)
def test_the_offsets_of_an_empty_group_are_reset(
    tools: Tools, read_topic: str, group: str, scenario: tuple[str, ...], committed: list[str]
) -> None:
    tools.consumer_groups(
        *("--group", group, "--topic", read_topic, "--reset-offsets", *scenario, "--execute")
    )

    rows = offsets(tools, group, read_topic)
    assert [rows[0][0], rows[1][0]] == committed


@pytest.mark.long
def test_the_offsets_of_a_group_with_members_are_not_reset(
    client_named: ClientNamed, tools: Tools, read_topic: str, group: str
) -> None:
    with client_named("confluent").join(group, read_topic) as member:
        wait_until(lambda: member.assigned() == {0, 1}, "the member holds its partitions")

        refusal = tools.attempt(
            "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
            *("--group", group, "--topic", read_topic, "--reset-offsets", "--to-earliest"),
            "--execute",
        )

    assert "inactive" in refusal.out + refusal.err
    assert offsets(tools, group, read_topic)[0][0] == "10"


@pytest.mark.long
def test_the_offsets_of_one_topic_are_deleted_from_a_group(
    tools: Tools, read_topic: str, group: str
) -> None:
    tools.consumer_groups("--delete-offsets", "--group", group, "--topic", read_topic)

    assert offsets(tools, group, read_topic) == {}


def test_a_group_is_deleted_only_when_it_is_empty(
    client_named: ClientNamed, tools: Tools, read_topic: str, group: str
) -> None:
    name = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    with client_named("confluent").join(group, read_topic) as member:
        wait_until(lambda: member.assigned() == {0, 1}, "the member holds its partitions")
        refusal = tools.attempt(name, "--delete", "--group", group)
    assert "GroupNotEmptyException" in refusal.out + refusal.err

    tools.consumer_groups("--delete", "--group", group)

    assert group not in tools.consumer_groups("--list").split()
    missing = tools.attempt(name, "--describe", "--group", group)
    assert "GroupIdNotFoundException" in missing.out + missing.err


@pytest.mark.long
def test_deleting_a_topic_deletes_what_groups_committed_for_it(
    tools: Tools, read_topic: str, group: str
) -> None:
    tools.topics("--delete", "--topic", read_topic)

    wait_until(
        lambda: read_topic not in tools.consumer_groups("--describe", "--all-groups"),
        "the offsets of the deleted topic to go",
    )
