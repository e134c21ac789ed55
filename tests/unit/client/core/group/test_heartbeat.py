import pytest

from kohort.client.core.backoff import Backoff
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.heartbeat import (
    Action,
    Finding,
    FindingKind,
    HeartbeatRules,
    LookUpCoordinator,
    SendHeartbeat,
    SendLeave,
    Wait,
)
from kohort.client.core.group.identity import Identity
from kohort.protocol.errors import ErrorCode

ME = Identity(3, "me", "range")
CONFIG = MembershipConfig("g", None, 10_000, 3_000, max_poll_interval_ms=60_000)


def rules_of(config: MembershipConfig = CONFIG, *, polled_ms: int = 0) -> HeartbeatRules:
    """Rules of a member that has just joined, at time 0."""
    rules = HeartbeatRules(config, Backoff(100, 1000, lambda: 0.5))
    rules.polled(polled_ms)
    rules.begin(ME, 0)
    return rules


@pytest.fixture(name="rules")
def make_rules() -> HeartbeatRules:
    return rules_of()


def test_the_first_heartbeat_comes_an_interval_after_the_join(rules: HeartbeatRules) -> None:
    assert rules.next_action(0) == Wait(3_000)
    assert rules.next_action(2_999) == Wait(3_000)
    assert rules.next_action(3_000) == SendHeartbeat(ME)


def test_the_next_one_is_counted_from_when_the_last_was_sent(rules: HeartbeatRules) -> None:
    rules.next_action(3_000)
    rules.answered(ME, ErrorCode.NONE, 3_700)
    assert rules.next_action(3_700) == Wait(6_000)
    assert rules.last_success_ms == 3_700


def test_without_a_member_no_heartbeats_are_sent() -> None:
    rules = HeartbeatRules(CONFIG, Backoff(100, 1000, lambda: 0.5))
    assert rules.next_action(100_000) == Wait(None)


def test_a_member_whose_join_is_under_way_sends_none(rules: HeartbeatRules) -> None:
    rules.end()
    assert rules.next_action(100_000) == Wait(None)
    assert rules.take_findings() == []


def test_a_rebalance_is_told_once_and_counts_as_life(rules: HeartbeatRules) -> None:
    for at_ms in (3_000, 6_000, 9_000, 12_000, 15_000):
        assert rules.next_action(at_ms) == SendHeartbeat(ME)
        rules.answered(ME, ErrorCode.REBALANCE_IN_PROGRESS, at_ms)
    assert rules.take_findings() == [
        Finding(FindingKind.REBALANCING, ME, ErrorCode.REBALANCE_IN_PROGRESS)
    ]
    assert rules.take_findings() == []
    assert rules.next_action(18_000) == SendHeartbeat(ME)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (ErrorCode.ILLEGAL_GENERATION, FindingKind.GENERATION_LOST),
        (ErrorCode.UNKNOWN_MEMBER_ID, FindingKind.MEMBERSHIP_LOST),
        (ErrorCode.GROUP_ID_NOT_FOUND, FindingKind.MEMBERSHIP_LOST),
        (ErrorCode.FENCED_INSTANCE_ID, FindingKind.FENCED),
    ],
)
def test_an_error_that_ends_the_membership_ends_the_heartbeats(
    code: ErrorCode, kind: FindingKind
) -> None:
    rules = rules_of()
    rules.next_action(3_000)
    rules.answered(ME, code, 3_001)
    assert rules.take_findings() == [Finding(kind, ME, code)]
    assert rules.next_action(10_000) == Wait(None)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_REQUEST])
def test_an_answer_that_makes_no_sense_is_asked_for_again(code: ErrorCode) -> None:
    rules = rules_of()
    rules.next_action(3_000)
    rules.answered(ME, code, 3_000)
    assert rules.take_findings() == []
    assert rules.next_action(3_000) == Wait(3_100)
    assert rules.next_action(3_100) == SendHeartbeat(ME)
    rules.answered(ME, ErrorCode.NONE, 3_110)
    assert rules.next_action(3_110) == Wait(6_100)


def test_a_refusal_is_told_and_heartbeats_go_on(rules: HeartbeatRules) -> None:
    refused = Finding(FindingKind.REFUSED, ME, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    rules.next_action(3_000)
    rules.answered(ME, refused.code, 3_000)
    assert rules.take_findings() == [refused]
    assert rules.next_action(3_100) == SendHeartbeat(ME)
    rules.failed(3_100)
    assert rules.next_action(4_000) == LookUpCoordinator()
    rules.take_findings()
    rules.found_coordinator(refused.code, 4_000)
    assert rules.take_findings() == [refused]
    assert rules.next_action(5_000) == LookUpCoordinator()


def test_an_answer_about_an_earlier_identity_changes_nothing(rules: HeartbeatRules) -> None:
    rules.next_action(3_000)
    now = Identity(4, "me", "range")
    rules.begin(now, 3_500)
    rules.answered(ME, ErrorCode.UNKNOWN_MEMBER_ID, 3_600)
    assert rules.take_findings() == []
    assert rules.next_action(6_500) == SendHeartbeat(now)


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_coordinator_that_is_none_is_looked_for(rules: HeartbeatRules, code: ErrorCode) -> None:
    rules.next_action(3_000)
    rules.answered(ME, code, 3_000)
    _check_search(rules, code)


def test_a_lost_connection_has_the_coordinator_looked_for(rules: HeartbeatRules) -> None:
    rules.next_action(3_000)
    rules.failed(3_000)
    _check_search(rules, ErrorCode.NETWORK_EXCEPTION)


def _check_search(rules: HeartbeatRules, code: ErrorCode) -> None:
    """It is looked for after a growing wait, and then told at once that the member lives."""
    assert rules.take_findings() == [Finding(FindingKind.COORDINATOR_LOST, ME, code)]
    assert rules.next_action(3_000) == Wait(3_100)
    assert rules.next_action(3_100) == LookUpCoordinator()
    rules.found_coordinator(ErrorCode.COORDINATOR_NOT_AVAILABLE, 3_100)
    assert rules.next_action(3_100) == Wait(3_300)
    assert rules.next_action(3_300) == LookUpCoordinator()
    rules.found_coordinator(ErrorCode.NONE, 3_310)
    assert rules.next_action(3_310) == SendHeartbeat(ME)


def test_a_loading_coordinator_is_asked_again(rules: HeartbeatRules) -> None:
    rules.next_action(3_000)
    rules.answered(ME, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 3_000)
    assert rules.next_action(3_050) == Wait(3_100)
    assert rules.next_action(3_100) == SendHeartbeat(ME)
    assert rules.take_findings() == []


def test_a_session_without_success_makes_the_coordinator_doubtful_but_not_the_member() -> None:
    rules = rules_of()
    for at_ms in range(3_000, 10_000, 1_000):
        if isinstance(rules.next_action(at_ms), SendHeartbeat):
            rules.answered(ME, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, at_ms)
    rules.next_action(10_000)
    assert [finding.kind for finding in rules.take_findings()] == [FindingKind.COORDINATOR_LOST]
    assert rules.next_action(11_500) == LookUpCoordinator()


def test_a_coordinator_found_after_a_long_outage_gets_a_heartbeat_at_once() -> None:
    rules = rules_of()
    assert rules.next_action(3_000) == SendHeartbeat(ME)
    rules.failed(3_000)
    assert rules.next_action(20_000) == LookUpCoordinator()
    rules.found_coordinator(ErrorCode.NONE, 20_000)
    assert rules.next_action(20_000) == SendHeartbeat(ME)


def test_a_member_that_polls_again_in_time_stays(rules: HeartbeatRules) -> None:
    rules.polled(59_000)
    _live_until(rules, 59_999)
    assert isinstance(rules.next_action(60_000), SendHeartbeat)
    assert rules.take_findings() == []


def test_a_member_that_does_not_poll_leaves_and_learns_of_it(rules: HeartbeatRules) -> None:
    _live_until(rules, 59_999)
    action = rules.next_action(60_000)
    assert isinstance(action, SendLeave)
    assert action.identity == ME
    assert rules.take_findings() == [Finding(FindingKind.POLL_EXPIRED, ME)]
    assert rules.next_action(60_001) == Wait(None)


def test_a_static_member_that_does_not_poll_only_falls_silent() -> None:
    rules = rules_of(CONFIG._replace(group_instance_id="i"))
    _live_until(rules, 59_999)
    assert rules.next_action(60_000) == Wait(None)
    assert rules.take_findings() == [Finding(FindingKind.POLL_EXPIRED, ME)]


def test_it_wakes_up_for_the_poll_deadline_too() -> None:
    rules = rules_of(CONFIG._replace(max_poll_interval_ms=2_000))
    assert rules.next_action(0) == Wait(2_000)


def test_findings_do_not_pile_up_while_no_one_looks() -> None:
    rules = rules_of(CONFIG._replace(max_poll_interval_ms=10**9))
    for at_ms in range(0, 10_000_000, 1_000):
        action: Action = rules.next_action(at_ms)
        if isinstance(action, SendHeartbeat):
            rules.failed(at_ms)
        elif isinstance(action, LookUpCoordinator):
            rules.found_coordinator(ErrorCode.NONE, at_ms)
    assert len(rules.take_findings()) <= 2


def _live_until(rules: HeartbeatRules, end_ms: int) -> None:
    for at_ms in range(0, end_ms, 1_000):
        if isinstance(rules.next_action(at_ms), SendHeartbeat):
            rules.answered(ME, ErrorCode.NONE, at_ms)


def test_a_member_that_is_not_let_in_any_more_is_told_and_sends_nothing() -> None:
    rules = rules_of()
    assert rules.next_action(3_000) == SendHeartbeat(ME)
    rules.refused(ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert rules.take_findings() == [
        Finding(FindingKind.LOCKED_OUT, ME, ErrorCode.SASL_AUTHENTICATION_FAILED)
    ]
    assert rules.next_action(10_000) == Wait(None)
