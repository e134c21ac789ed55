"""Configs of a consumer group (KIP-848) take effect, also after a restart."""

from pathlib import Path
from typing import Any

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages import consumer_group_describe as describing
from kohort.protocol.messages import consumer_group_heartbeat as beating
from kohort.protocol.messages import incremental_alter_configs as altering
from kohort.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from tests.support.brokers.kohort_server import KohortServer
from tests.support.network.wire import RawClient
from tests.support.waiting import wait_until

GROUP = 32
BOUNDS = {
    "group.consumer.min.session.timeout.ms": "1",
    "group.consumer.min.heartbeat.interval.ms": "1",
}
CONFIGS = {"consumer.session.timeout.ms": "700", "consumer.heartbeat.interval.ms": "321"}


def configure(client: RawClient) -> None:
    resource = altering.AlterConfigsResource(
        resource_type=GROUP,
        resource_name="readers",
        configs=[
            altering.AlterableConfig(name=name, config_operation=0, value=value)
            for name, value in CONFIGS.items()
        ],
    )
    request = altering.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = client.call(request, 1, altering.IncrementalAlterConfigsResponse)
    assert answer.responses[0].error_code == ErrorCode.NONE


def join(client: RawClient) -> beating.ConsumerGroupHeartbeatResponse:
    """Join as a new member, once the group is loaded."""
    request = beating.ConsumerGroupHeartbeatRequest(
        group_id="readers",
        member_id="silent",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["any"],
        topic_partitions=[],
    )
    answers: list[beating.ConsumerGroupHeartbeatResponse] = []

    def is_in() -> bool:
        answers.append(client.call(request, 1, beating.ConsumerGroupHeartbeatResponse))
        return answers[-1].error_code == ErrorCode.NONE

    wait_until(is_in, lambda: f"a member joins: {answers[-1]}")
    return answers[-1]


def has_no_members(client: RawClient) -> bool:
    request = describing.ConsumerGroupDescribeRequest(group_ids=["readers"])
    (group,) = client.call(request, 1, describing.ConsumerGroupDescribeResponse).groups
    assert group.error_code == ErrorCode.NONE
    return not group.members


def check_in_force(client: RawClient) -> None:
    assert join(client).heartbeat_interval_ms == 321
    # The broker's own timeout would be 45 s.
    wait_until(lambda: has_no_members(client), "the member is removed", timeout_s=30)


def test_a_groups_session_timeout_removes_a_silent_member(tmp_path: Path) -> None:
    with KohortServer(tmp_path, overrides=BOUNDS) as broker:
        with RawClient(broker.port) as client:
            configure(client)
            check_in_force(client)
        broker.stop()
        broker.start()
        with RawClient(broker.port) as client:
            check_in_force(client)


@pytest.mark.parametrize(
    ("request_type", "response_type", "fields"),
    [
        (
            beating.ConsumerGroupHeartbeatRequest,
            beating.ConsumerGroupHeartbeatResponse,
            {"rebalance_timeout_ms": 60_000, "topic_partitions": []},
        ),
        (ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse, {}),
    ],
)
def test_the_heartbeat_interval_follows_the_number_of_members(
    tmp_path: Path,
    request_type: Any,  # noqa: ANN401
    response_type: Any,  # noqa: ANN401
    fields: dict[str, Any],
) -> None:
    limit = {"kohort.group.consumer.heartbeats.per.second": "1"}
    with KohortServer(tmp_path, overrides=limit) as broker, RawClient(broker.port) as client:
        intervals = [
            client.call(
                request_type(
                    group_id="g",
                    member_id=f"member-{number}",
                    member_epoch=0,
                    subscribed_topic_names=["any"],
                    **fields,
                ),
                1,
                response_type,
            ).heartbeat_interval_ms
            for number in range(8)
        ]
    assert intervals == [500, *range(1_000, 5_000, 1_000), 5_000, 5_000, 5_000]
