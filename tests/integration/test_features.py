"""What ApiVersions says of features, and what a tool that then raises all levels is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort import Consumer, errors
from kohort.protocol.errors import ErrorCode
from tests.support import messages as m
from tests.support.brokers.broker_thread import BrokerThread
from tests.support.network.wire import RawClient

SINCE_ZERO_IS_TOLD = 4


@pytest.fixture
def client(tmp_path: Path) -> Iterator[RawClient]:
    with BrokerThread(tmp_path) as broker, RawClient(broker.port) as connected:
        yield connected


def levels(client: RawClient) -> dict[str, tuple[int, int]]:
    """By feature: the highest level that is supported, and that in use."""
    asked = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    told = client.call(asked, SINCE_ZERO_IS_TOLD, m.ApiVersionsResponse)
    in_use = {one.name: one.max_version_level for one in told.finalized_features}
    assert told.finalized_features_epoch != -1
    return {one.name: (one.max_version, in_use[one.name]) for one in told.supported_features}


def test_every_feature_is_in_use_at_its_highest_level(client: RawClient) -> None:
    assert levels(client) == {
        "group.version": (1, 1),
        "join.reason": (1, 1),
        "share.version": (2, 2),
        "transaction.version": (2, 2),
    }


async def test_a_broker_without_consumer_groups_gets_classic_members(tmp_path: Path) -> None:
    settings = {"group.coordinator.rebalance.protocols": "classic"}
    with BrokerThread(tmp_path, overrides=settings) as broker:
        address = f"127.0.0.1:{broker.port}"
        with pytest.raises(errors.ConsumerError, match="group_protocol"):
            await Consumer(
                "t", bootstrap_servers=address, group_id="g", group_protocol="consumer"
            ).start()
        async with Consumer(
            "t", bootstrap_servers=address, group_id="g", group_protocol="auto"
        ) as consumer:
            assert consumer.health().group_protocol == "classic"


def test_only_the_levels_in_use_can_be_set(client: RawClient) -> None:
    def set_to(level_of: dict[str, int]) -> m.UpdateFeaturesResponse:
        updates = [
            m.FeatureUpdateKey(feature=name, max_version_level=level)
            for name, level in level_of.items()
        ]
        return client.call(
            m.UpdateFeaturesRequest(feature_updates=updates), 1, m.UpdateFeaturesResponse
        )

    in_use = {name: level for name, (_, level) in levels(client).items()}
    accepted = set_to(in_use)
    assert accepted.error_code == ErrorCode.NONE
    assert {one.feature: one.error_code for one in accepted.results} == dict.fromkeys(in_use, 0)
    refused = set_to(in_use | {"transaction.version": 1})
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert refused.results == []
    assert "1 for feature transaction.version" in (refused.error_message or "")
