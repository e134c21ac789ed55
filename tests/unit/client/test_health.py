import json
import re
from typing import Any

import pytest

from client.core.membership import MemberState
from client.core.partitions import TopicPartition
from client.core.statistics import RebalancePhase
from client.health import Health, HealthLimits

LIMITS = HealthLimits(session_timeout_ms=10_000, max_poll_interval_ms=60_000)
LAG = {TopicPartition("orders", 1): 7, TopicPartition("orders", 0): 5}

SETTLED: dict[str, Any] = {
    "client_id": "c1",
    "group_id": "billing",
    "is_subscribed": True,
    "member_state": MemberState.STABLE,
    "generation": 3,
    "member_id": "c1-1234",
    "coordinator": "broker:9092",
    "last_heartbeat_seconds_ago": 2.0,
    "last_poll_seconds_ago": 0.1,
    "last_rebalance_cause": "started",
    "last_rebalance_duration_seconds": 3.2,
    "last_rebalance_seconds_ago": 120.0,
    "lag": LAG,
    "limits": LIMITS,
}


def health(**changes: Any) -> Health:  # noqa: ANN401 - of many types.
    return Health(**SETTLED | changes)


def test_a_settled_member_is_healthy() -> None:
    assert health().is_healthy
    assert health().problem is None
    assert health().assigned == set(LAG)
    assert health().total_lag == 12


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"is_closed": True}, "closed"),
        ({"error": "FENCED_INSTANCE_ID: give each its own"}, "FENCED_INSTANCE_ID"),
        ({"last_poll_seconds_ago": 60.0}, "no poll for 60 seconds.*max_poll_interval_ms is 60000"),
        ({"last_heartbeat_seconds_ago": 10.0}, "heartbeat.*10 seconds.*session_timeout_ms"),
        (
            {
                "member_state": MemberState.UNJOINED,
                "unsettled_seconds": 10.0,
                "coordinator": None,
            },
            "10 seconds.*coordinates",
        ),
        (
            {
                "member_state": MemberState.PREPARING_REBALANCE,
                "rebalance_phase": RebalancePhase.JOINING,
                "unsettled_seconds": 60.0,
            },
            "60 seconds.*joining",
        ),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(changes: dict[str, Any], words: str) -> None:
    found = health(**changes)
    assert not found.is_healthy
    assert found.problem is not None
    assert re.search(words, found.problem)
    assert str(found) == found.problem


@pytest.mark.parametrize(
    "changes",
    [
        {"last_poll_seconds_ago": 59.9},
        {"last_heartbeat_seconds_ago": 9.9},
        {"last_heartbeat_seconds_ago": None, "last_poll_seconds_ago": None},
        {"member_state": MemberState.UNJOINED, "unsettled_seconds": 9.9, "coordinator": None},
        {"member_state": MemberState.COMPLETING_REBALANCE, "unsettled_seconds": 59.9},
        # Without a subscription nothing is to be expected of the group.
        {"is_subscribed": False, "last_poll_seconds_ago": 500.0, "unsettled_seconds": 500.0},
    ],
)
def test_what_takes_no_longer_than_the_settings_allow_is_no_problem(
    changes: dict[str, Any],
) -> None:
    assert health(**changes).problem is None


def test_a_lag_that_is_not_known_makes_no_sum() -> None:
    assert health(lag={**LAG, TopicPartition("orders", 2): None}).total_lag is None
    assert health(lag={}).total_lag == 0


def test_it_can_be_written_as_json() -> None:
    found = json.loads(json.dumps(health().as_dict()))
    assert found["is_healthy"] is True
    assert found["member_state"] == "stable"
    assert found["rebalance_phase"] == "none"
    assert found["coordinator"] == "broker:9092"
    assert found["partitions"] == [
        {"topic": "orders", "partition": 0, "lag": 5},
        {"topic": "orders", "partition": 1, "lag": 7},
    ]
