"""Groups of the consumer protocol (KIP-848) with an unmodified client, alone and mixed with classic
members: nothing is lost or read twice.
"""

from contextlib import ExitStack

import pytest

from tests.interop.conftest import ClientNamed, CreateTopic
from tests.interop.streams import streaming
from tests.interop.test_groups import PARTITIONS, check_exactly_once, wait_for_shares
from tests.support.clients.confluent_client import ConfluentClient, ConsumerProtocolClient
from tests.support.clients.model import Member


@pytest.mark.parametrize(
    "kinds",
    [
        (ConsumerProtocolClient, ConsumerProtocolClient, ConsumerProtocolClient),
        # The second member upgrades the group while it runs.
        (ConfluentClient, ConsumerProtocolClient, ConsumerProtocolClient),
        # The last consumer leaves, and the group becomes a classic one.
        (ConsumerProtocolClient, ConfluentClient, ConfluentClient),
    ],
    ids=["consumers", "upgraded", "downgraded"],
)
def test_members_share_a_topic_through_rebalances_and_each_record_is_read_once(
    kinds: tuple[type[ConfluentClient], ...],
    bootstrap: str,
    client_named: ClientNamed,
    create_topic: CreateTopic,
    group: str,
) -> None:
    topic = create_topic(partitions=PARTITIONS)
    with ExitStack() as stack, streaming(client_named("confluent"), topic, PARTITIONS) as stream:
        members: list[Member] = []
        for kind in kinds:
            # One after the other: a JoinGroup that is waiting when a group is upgraded fails, as in
            # Kafka, and this library reports that.
            members.append(stack.enter_context(kind(bootstrap).join(group, topic)))
            wait_for_shares(members)
        members[0].leave()
        wait_for_shares(members[1:])
        stream.stop()
        check_exactly_once(stream, members)
