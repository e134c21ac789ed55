"""Consumer groups: members share a topic, come and go, and nothing is lost or read twice."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.interop.conftest import ClientNamed, CreateTopic, few_clients
from tests.interop.streams import Stream, check_order, streaming, wait_until_all_read
from tests.support.clients.model import Client, Member, Record
from tests.support.waiting import wait_until

PARTITIONS = 6


def share_evenly(members: list[Member]) -> Callable[[], bool]:
    """Whether the members hold all partitions, each its part, none twice."""

    def check() -> bool:
        held = [member.assigned() for member in members]
        return (
            sum(map(len, held)) == PARTITIONS
            and set().union(*held) == set(range(PARTITIONS))
            and all(len(partitions) == PARTITIONS // len(members) for partitions in held)
        )

    return check


def wait_for_shares(members: list[Member]) -> None:
    wait_until(share_evenly(members), lambda: str([member.assigned() for member in members]))


def check_exactly_once(stream: Stream, members: list[Member]) -> None:
    """Waits until all that was sent was read, then checks it record by record."""
    wait_until_all_read(stream, members)
    read = Counter(record.value for member in members for record in member.records())
    assert read == Counter(stream.sent)
    for member in members:
        check_order(member.records())


def run_rebalances(clients: list[Client], writer: Client, group: str, topic: str) -> None:
    """Two members share a topic, a third joins, the first leaves; records flow all the time."""
    with ExitStack() as stack, streaming(writer, topic, PARTITIONS) as stream:
        members = [stack.enter_context(client.join(group, topic)) for client in clients[:2]]
        wait_for_shares(members)
        members.append(stack.enter_context(clients[2].join(group, topic)))
        wait_for_shares(members)
        members[0].leave()
        wait_for_shares(members[1:])
        stream.stop()
        check_exactly_once(stream, members)


@few_clients
def test_three_members_share_a_topic_through_a_rebalance_and_each_record_is_read_once(
    client: Client, client_named: ClientNamed, create_topic: CreateTopic, group: str
) -> None:
    topic = create_topic(partitions=PARTITIONS)

    run_rebalances([client] * 3, client_named("confluent"), group, topic)


@pytest.mark.parametrize(
    "names",
    [
        ("aiokafka", "confluent", "java"),
        ("java", "kafka-python", "aiokafka"),
    ],
    ids="+".join,
)
def test_members_of_different_libraries_share_one_group(
    client_named: ClientNamed, create_topic: CreateTopic, group: str, names: tuple[str, ...]
) -> None:
    topic = create_topic(partitions=PARTITIONS)
    clients = [client_named(name) for name in names]

    run_rebalances(clients, client_named("confluent"), group, topic)


@few_clients
def test_a_group_continues_where_its_last_member_left(
    client: Client, create_topic: CreateTopic, group: str
) -> None:
    topic = create_topic(partitions=PARTITIONS)
    first = [Record(b"%d" % number, partition=number % PARTITIONS) for number in range(60)]
    second = [Record(b"more %d" % number, partition=number % PARTITIONS) for number in range(60)]
    client.produce(topic, first)
    with client.join(group, topic) as member:
        wait_until(lambda: len(member.records()) == len(first), "all of the first part read")
    client.produce(topic, second)

    with client.join(group, topic) as successor:
        wait_until(lambda: len(successor.records()) >= len(second), "all of the second part read")

    assert Counter(record.value for record in successor.records()) == Counter(
        record.value for record in second
    )
