"""Groups of driven members that have settled, and what tests ask of them."""

from typing import Any

from kohort.client.core.partitions import TopicPartition
from kohort.protocol.join_reason import JoinReason
from tests.support.groups.driven_members import DrivenMember, live
from tests.support.groups.scenario import SECOND, Scenario

EAGER = ("range",)
COOPERATIVE = ("cooperative-sticky",)


def partitions(*indexes: int, topic: str = "t") -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, index) for index in indexes)


def group_of(
    count: int,
    scenario: Scenario | None = None,
    **options: Any,  # noqa: ANN401
) -> tuple[Scenario, list[DrivenMember]]:
    """A group that has settled; listeners and joins are forgotten."""
    scenario = scenario or Scenario(partition_counts={"t": 6})
    members = [DrivenMember(scenario, "t", **options) for _ in range(count)]
    live(scenario, members, 30 * SECOND)
    assert all(member.is_settled for member in members)
    forget(*members)
    return scenario, members


def forget(*members: DrivenMember) -> None:
    for member in members:
        member.calls.clear()
        member.joins.clear()


def reasons(member: DrivenMember) -> list[JoinReason]:
    return [JoinReason(join.join_reason) for join in member.joins]


def owned(members: list[DrivenMember]) -> list[TopicPartition]:
    return sorted(partition for member in members for partition in member.owned)
