"""Groups with members, of both protocols, go from Kohort to a real Kafka with the data directory,
and back: each broker restores them from the records of the other as they were.
"""

from pathlib import Path

from confluent_kafka.admin import NewTopic

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import consumer_group_describe as describing
from kohort.protocol.messages import describe_configs as configs
from kohort.protocol.messages import incremental_alter_configs as altering
from kohort.protocol.messages.groups import DescribedGroup
from tests.interop.test_kafka_directory import kohort
from tests.support import messages as m
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.clients.confluent_client import (
    ConsumerProtocolClient,
    admin_client,
    create_topics,
)
from tests.support.clients.model import Seat
from tests.support.groups.group_probe import GroupProbe
from tests.support.groups.raw_members import RawMember, bring_together, settle
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

TOPIC = "orders"
GROUP = "billing"
CLASSIC = "shipping"
GROUP_TYPE = 32
SESSION_MS = "50000"
NOT_READY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}

Shares = list[tuple[str, list[int]]]


def shares(assignment: describing.Assignment) -> Shares:
    return [(topic.topic_name, sorted(topic.partitions)) for topic in assignment.topic_partitions]


def described(port: int) -> describing.DescribedGroup:
    found: list[describing.DescribedGroup] = []
    request = describing.ConsumerGroupDescribeRequest(group_ids=[GROUP])

    def is_ready() -> bool:
        with RawClient(port) as client:
            answer = client.call(request, 1, describing.ConsumerGroupDescribeResponse)
        found[:] = answer.groups
        return found[0].error_code not in NOT_READY

    wait_until(is_ready, "the coordinator has loaded its groups")
    return found[0]


def view(port: int) -> object:
    """The group as the broker shows it, whatever the order."""
    group = described(port)
    members = sorted(
        (
            member.member_id,
            member.instance_id,
            member.member_epoch,
            tuple(member.subscribed_topic_names),
            shares(member.assignment),
            shares(member.target_assignment),
        )
        for member in group.members
    )
    epochs = group.group_epoch, group.assignment_epoch
    return group.error_code, group.group_state, epochs, group.assignor_name, members


def classic_view(port: int) -> DescribedGroup:
    group = GroupProbe(port, CLASSIC).describe()
    group.members.sort(key=lambda member: member.group_instance_id or "", reverse=True)
    return group


def check_members(port: int, members: list[RawMember]) -> None:
    """The broker knows the members of the classic group with their generation."""
    for member in members:
        request = m.HeartbeatRequest(
            group_id=CLASSIC,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.instance_id,
        )
        with RawClient(port) as client:
            assert client.call(request, 4, m.HeartbeatResponse).error_code == ErrorCode.NONE


def configure(port: int) -> None:
    config = altering.AlterableConfig(
        name="consumer.session.timeout.ms", config_operation=0, value=SESSION_MS
    )
    resource = altering.AlterConfigsResource(
        resource_type=GROUP_TYPE, resource_name=GROUP, configs=[config]
    )
    request = altering.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    with RawClient(port) as client:
        answer = client.call(request, 1, altering.IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE


def configured(port: int) -> str | None:
    resource = configs.DescribeConfigsResource(
        resource_type=GROUP_TYPE,
        resource_name=GROUP,
        configuration_keys=["consumer.session.timeout.ms"],
    )
    request = configs.DescribeConfigsRequest(resources=[resource])
    with RawClient(port) as client:
        answer = client.call(request, 4, configs.DescribeConfigsResponse)
    return answer.results[0].configs[0].value


def test_groups_with_members_are_the_same_at_both_brokers(tmp_path: Path) -> None:
    ours, theirs = KohortServer(tmp_path), KafkaServer(tmp_path)
    assert ours.data == theirs.data
    with ours:
        create_topics(admin_client(ours.bootstrap), NewTopic(TOPIC, 6, 1))
        client = ConsumerProtocolClient(ours.bootstrap)
        seats = (Seat(instance_id="one"), Seat(instance_id="two"))
        members = [client.join(GROUP, TOPIC, seat) for seat in seats]
        wait_until(
            lambda: sorted(len(member.assigned()) for member in members) == [3, 3],
            "both have their share",
        )
        wait_until(lambda: described(ours.port).group_state == "Stable", "the group is stable")
        before = view(ours.port)
        configure(ours.port)
        static = [RawMember(ours.port, CLASSIC, instance_id=name) for name in ("three", "four")]
        bring_together(GroupProbe(ours.port, CLASSIC), *static)
        settle(*static)
        classic = classic_view(ours.port)
        # The broker stops first, so that its members are still there.
    for member in members:
        member.leave()
    assert [one.group_instance_id for one in classic.members] == ["three", "four"]
    kohort("export-kafka", str(ours.data))
    with theirs:
        assert view(theirs.port) == before
        assert configured(theirs.port) == SESSION_MS
        assert classic_view(theirs.port) == classic
        check_members(theirs.port, static)
    kohort("import-kafka", str(ours.data))
    with ours:
        assert configured(ours.port) == SESSION_MS
        assert view(ours.port) == before
        assert classic_view(ours.port) == classic
        check_members(ours.port, static)
