import json
import re
from dataclasses import replace
from typing import Any

import pytest

from kohort.client.consumer.health import Health, HealthLimits
from kohort.client.core.backoff import OngoingFailure
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.statistics import RebalancePhase
from kohort.client.core.partitions import TopicPartition
from kohort.client.processing.figures import RunFigures

LIMITS = HealthLimits(session_timeout_ms=10_000, max_poll_interval_ms=60_000)
ZERO, ONE = TopicPartition("orders", 0), TopicPartition("orders", 1)
LAG = {ONE: 7, ZERO: 5}
AGAIN = OngoingFailure("no good", 2, 3.0)
PASSING = OngoingFailure("no answer", 5, 9.9, is_refused=False)
"""What may pass, and has lasted for almost as long as it may."""

RUN = RunFigures(
    is_running=True, handled=1, failed=0, retried=0, dead_lettered=0, dead_letter_failures=0,
    skipped=0, dropped=0, in_flight=1, waiting=0, held_bytes=10, oldest_in_flight_seconds=60.0,
    oldest_in_flight=(ONE, 5), handler_seconds=1.0, dead_letters_failing_seconds=None,
    dead_letter_error=None, failure=None,
)  # fmt: skip

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
    "last_fetch_seconds_ago": {ZERO: 0.2, ONE: 0.3},
    "limits": LIMITS,
}


def health(**changes: Any) -> Health:  # noqa: ANN401 - of many types.
    return Health(**SETTLED | changes)


def test_a_settled_member_is_healthy() -> None:
    assert health().is_healthy
    assert health().problem is None
    assert health().assigned == set(LAG)
    assert health().total_lag == 12


JOINING = {
    "member_state": MemberState.PREPARING_REBALANCE,
    "rebalance_phase": RebalancePhase.JOINING,
}
UNJOINED = {"member_state": MemberState.UNJOINED}
BY_HAND = {"is_subscribed": False, "is_assigned": True}


@pytest.mark.parametrize(
    ("changes", "is_alive", "words"),
    [
        ({"is_closed": True}, False, "closed"),
        ({"error": "FENCED_INSTANCE_ID: give each its own"}, False, "FENCED_INSTANCE_ID"),
        (
            {"last_poll_seconds_ago": 60.0},
            False,
            "last poll was 60 seconds ago.*max_poll_interval_ms is 60000",
        ),
        ({**BY_HAND, "last_poll_seconds_ago": 60.0}, False, "last poll was 60 seconds ago"),
        (
            {"last_poll_seconds_ago": None, "started_seconds_ago": 60.0, "coordinator": None},
            False,
            "started 60 seconds ago and has never been polled",
        ),
        # A run polls whatever its handlers do.
        ({"run": replace(RUN, handler_seconds=60.0)}, False, "has not returned for 60 seconds"),
        # No new process brings back a broker, an ACL, or a record that can be read.
        (
            {"run": replace(RUN, dead_letters_failing_seconds=10.0, dead_letter_error="gone")},
            True,
            "Writing dead letters has failed for 10 seconds: gone",
        ),
        # The application decides whether it runs again.
        (
            {"run": replace(RUN, is_running=False, failure="ValueError('v')")},
            True,
            "run has failed: ValueError",
        ),
        ({"last_heartbeat_seconds_ago": 10.0}, True, "heartbeat.*10 seconds.*session_timeout_ms"),
        (
            {**UNJOINED, "unsettled_seconds": 10.0, "coordinator": None},
            True,
            "10 seconds.*coordinator",
        ),
        ({**JOINING, "unsettled_seconds": 60.0}, True, "60 seconds.*joining"),
        (
            {**UNJOINED, "unsettled_seconds": 60.0, "group_error": "JoinGroup: UNKNOWN"},
            True,
            "last error: JoinGroup: UNKNOWN",
        ),
        (
            {"unread": {ONE: AGAIN}},
            True,
            "orders-1 cannot be read further, 2 times in 3 seconds: no good",
        ),
        ({"poll_failure": AGAIN}, True, "Polls raise errors, 2 times in 3 seconds: no good"),
        ({"commit_failure": AGAIN}, True, "Commits fail, 2 times in 3 seconds: no good"),
        (
            {"commit_failure": PASSING._replace(seconds=10.0)},
            True,
            "Commits fail, 5 times in 10 seconds",
        ),
        (
            {**BY_HAND, "unanswered_seconds": {ZERO: 10.0}},
            True,
            "answered for 1 of 2 partitions for up to 10 seconds, orders-0",
        ),
    ],
)
def test_a_problem_is_a_sentence_and_a_reason_for_a_new_process_only_if_that_helps(
    changes: dict[str, Any], words: str, *, is_alive: bool
) -> None:
    found = health(**changes)
    assert (found.is_alive, found.is_ready, found.is_healthy) == (is_alive, False, False)
    assert found.problem is not None
    assert re.search(words, found.problem)
    assert str(found) == found.problem


@pytest.mark.parametrize(
    "changes",
    [
        {"last_poll_seconds_ago": 59.9},
        {"last_heartbeat_seconds_ago": 9.9},
        {"last_heartbeat_seconds_ago": None, "last_poll_seconds_ago": None},
        {"last_poll_seconds_ago": None, "started_seconds_ago": 59.9, "unsettled_seconds": None},
        {"unread": {ONE: AGAIN._replace(times=1, seconds=500.0)}},
        {"poll_failure": AGAIN._replace(times=1)},
        {"commit_failure": PASSING},
        {"unanswered_seconds": {ZERO: 9.9}},
        {"run": replace(RUN, handler_seconds=59.9)},
        {"run": replace(RUN, handler_seconds=60.0, is_running=False)},
        {"run": replace(RUN, failure="ValueError('v')")},
        {"run": replace(RUN, dead_letters_failing_seconds=9.9, dead_letter_error="gone")},
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


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"last_poll_seconds_ago": None}, "not been polled"),
        ({**JOINING, "unsettled_seconds": 0.1}, "phase: 'joining'"),
        ({"unanswered_seconds": {ZERO: 0.4}}, "for orders-0"),
        ({"missing": {"a-7": 0.4, "b-1": 0.4}}, "There is no a-7 and no b-1"),
        ({"last_fetch_seconds_ago": {ZERO: 0.2, ONE: None}}, "orders-1 has not been fetched"),
    ],
)
def test_what_is_not_read_yet_is_healthy_and_not_ready(changes: dict[str, Any], words: str) -> None:
    found = health(**changes)
    assert (found.is_healthy, found.is_ready, found.is_alive) == (True, False, True)
    assert found.unready is not None
    assert re.search(words, found.unready)


def test_what_is_paused_need_not_be_fetched_to_be_ready() -> None:
    found = health(last_fetch_seconds_ago={ZERO: 0.2, ONE: None}, paused=frozenset({ONE}))
    assert found.is_ready


def test_a_lag_that_is_not_known_makes_no_sum() -> None:
    assert health(lag={**LAG, TopicPartition("orders", 2): None}).total_lag is None
    assert health(lag={}).total_lag == 0


def test_it_can_be_written_as_json() -> None:
    changes: dict[str, Any] = {"unread": {ONE: AGAIN}, "unanswered_seconds": {ZERO: 2.0}}
    found = json.loads(json.dumps(health(**changes, commit_failure=PASSING, run=RUN).as_dict()))
    assert (found["is_healthy"], found["is_ready"], found["is_alive"]) == (False, False, True)
    assert found["problem"] == found["unready"]
    assert found["commit_failure"] == {
        "error": "no answer", "times": 5, "seconds": 9.9, "is_refused": False,
    }  # fmt: skip
    assert found["poll_failure"] is None
    assert found["run"]["oldest_in_flight"] == {"topic": "orders", "partition": 1, "offset": 5}
    assert found["member_state"] == "stable"
    assert found["rebalance_phase"] == "none"
    assert found["coordinator"] == "broker:9092"
    assert found["partitions"] == [
        {
            "topic": "orders", "partition": 0, "lag": 5, "is_paused": False,
            "last_fetch_seconds_ago": 0.2, "unanswered_seconds": 2.0, "unread": None,
        },
        {
            "topic": "orders", "partition": 1, "lag": 7, "is_paused": False,
            "last_fetch_seconds_ago": 0.3, "unanswered_seconds": None, "unread": AGAIN._asdict(),
        },
    ]  # fmt: skip
