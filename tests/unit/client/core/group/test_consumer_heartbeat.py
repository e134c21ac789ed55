"""What the heartbeats of a consumer group member contain, and what each response means."""

from itertools import pairwise

import pytest

from kohort.client.core.backoff import Backoff
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.consumer_heartbeat import ConsumerHeartbeatRules, Report
from kohort.client.core.group.heartbeat import (
    FindingKind,
    LookUpCoordinator,
    SendHeartbeat,
    SendLeave,
    Wait,
)
from kohort.client.core.group.identity import Identity
from kohort.client.core.group.rejoin import Rejoin
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason
from kohort.protocol.messages import consumer_group_heartbeat as m

SESSION_MS = 45_000
TOPIC = bytes(15) + b"\1"
STARTED = Rejoin(JoinReason.RESTART, "started")
REPORT = Report(frozenset({"orders"}), rejoin=STARTED)


class Member:
    """The rules of a member that begins to join at time 0."""

    def __init__(self, *, is_static: bool = False) -> None:
        instance_id = "i" if is_static else None
        config = MembershipConfig("g", instance_id, SESSION_MS, 3_000, 60_000, rack="a")
        self.rules = ConsumerHeartbeatRules(
            config._replace(remote_assignor="range"), Backoff(100, 1000, lambda: 0.5)
        )
        self.rules.report(REPORT, 0)
        self.rules.begin(Identity(0, "me"), 0)

    def send(self, now_ms: int) -> tuple[Identity, m.ConsumerGroupHeartbeatRequest]:
        action = self.rules.next_action(now_ms)
        assert isinstance(action, SendHeartbeat), action
        assert action.request is not None
        return action.identity, action.request

    def exchange(
        self, now_ms: int, epoch: int = 1, *, error: ErrorCode = ErrorCode.NONE
    ) -> m.ConsumerGroupHeartbeatRequest:
        """Send a heartbeat that is due, and answer it at once."""
        identity, request = self.send(now_ms)
        response = m.ConsumerGroupHeartbeatResponse(
            error_code=error, member_epoch=epoch, heartbeat_interval_ms=5_000
        )
        self.rules.heartbeat_answered(identity, response, now_ms)
        return request

    def kinds(self) -> list[FindingKind]:
        """Kinds of the findings, except successful responses."""
        kinds = [finding.kind for finding in self.rules.take_findings()]
        return [kind for kind in kinds if kind is not FindingKind.ANSWERED]


def test_the_first_heartbeat_states_everything_and_later_ones_only_changes() -> None:
    member = Member()
    first = member.exchange(0)
    assert (first.member_id, first.member_epoch, first.rack_id) == ("me", 0, "a")
    assert first.subscribed_topic_names == ["orders"]
    assert first.topic_partitions == []
    assert (first.rebalance_timeout_ms, first.server_assignor) == (60_000, "range")
    assert (first.join_reason, first.reason) == (JoinReason.RESTART, "started")
    assert member.rules.next_action(1) == Wait(5_000)
    second = member.exchange(5_000)
    assert second.member_epoch == 1
    assert second.subscribed_topic_names is None
    assert second.topic_partitions is None
    assert (second.rebalance_timeout_ms, second.join_reason) == (-1, 0)


def test_a_change_is_sent_at_once_and_only_the_change() -> None:
    member = Member()
    member.exchange(0)
    owned = frozenset({(TOPIC, 0), (TOPIC, 2)})
    member.rules.report(REPORT._replace(owned=owned, rejoin=None), 100)
    request = member.exchange(100)
    assert request.topic_partitions == [m.TopicPartitions(topic_id=TOPIC, partitions=[0, 2])]
    assert request.subscribed_topic_names is None
    assert member.rules.next_action(101) == Wait(5_100)


def test_after_a_lost_response_everything_is_stated_again() -> None:
    member = Member()
    member.exchange(0)
    member.send(5_000)
    member.rules.failed(5_100)
    assert isinstance(member.rules.next_action(5_200), LookUpCoordinator)
    member.rules.found_coordinator(ErrorCode.NONE, 5_200)
    request = member.exchange(5_200)
    assert request.member_epoch == 1
    assert request.subscribed_topic_names == ["orders"]
    assert request.topic_partitions == []
    # The coordinator has been told the reason.
    assert request.join_reason == 0


def test_a_reason_is_stated_until_it_has_arrived_and_then_no_more() -> None:
    member = Member()
    member.exchange(0)
    enforced = Rejoin(JoinReason.ENFORCED, "please")
    member.rules.report(REPORT._replace(rejoin=enforced), 10)
    for now_ms in (10, 1_000):
        request = member.exchange(now_ms, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        assert request.join_reason == JoinReason.ENFORCED
    assert member.exchange(5_000).join_reason == JoinReason.ENFORCED
    (finding,) = member.rules.take_findings()
    assert finding.answer is not None
    assert finding.answer.stated == enforced
    assert member.exchange(10_000).join_reason == 0


@pytest.mark.parametrize(
    ("error", "when_joining", "as_member"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, FindingKind.REJECTED, FindingKind.MEMBERSHIP_LOST),
        (ErrorCode.FENCED_MEMBER_EPOCH, FindingKind.REJECTED, FindingKind.MEMBERSHIP_LOST),
        (ErrorCode.GROUP_ID_NOT_FOUND, FindingKind.REJECTED, FindingKind.MEMBERSHIP_LOST),
        (ErrorCode.FENCED_INSTANCE_ID, FindingKind.FENCED, FindingKind.FENCED),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, FindingKind.REJECTED, FindingKind.REJECTED),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, FindingKind.REJECTED, FindingKind.REJECTED),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, FindingKind.REJECTED, FindingKind.REJECTED),
    ],
)
def test_errors_that_end_the_membership(
    error: ErrorCode, when_joining: FindingKind, as_member: FindingKind
) -> None:
    joining = Member()
    joining.exchange(0, error=error)
    assert joining.kinds() == [when_joining]
    assert joining.rules.next_action(100_000) == Wait(None)
    member = Member()
    member.exchange(0)
    member.exchange(5_000, error=error)
    assert member.kinds() == [as_member]
    assert member.rules.next_action(100_000) == Wait(None)


@pytest.mark.parametrize(
    ("error", "findings"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, []),
        (ErrorCode.UNKNOWN_SERVER_ERROR, []),
        (ErrorCode.NOT_COORDINATOR, [FindingKind.COORDINATOR_LOST]),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [FindingKind.REFUSED]),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, [FindingKind.REFUSED]),
    ],
)
def test_errors_after_which_the_member_tries_again(
    error: ErrorCode, findings: list[FindingKind]
) -> None:
    member = Member()
    member.exchange(0)
    member.exchange(5_000, error=error)
    assert member.kinds() == findings
    assert member.rules.has_member
    assert not isinstance(member.rules.next_action(6_000), Wait)


def test_an_instance_id_that_is_not_released_is_awaited_for_one_session() -> None:
    member = Member(is_static=True)
    now_ms, tried_ms = 0, []
    while FindingKind.REJECTED not in member.kinds():
        member.rules.polled(now_ms)
        match member.rules.next_action(now_ms):
            case SendHeartbeat(identity):
                tried_ms.append(now_ms)
                response = m.ConsumerGroupHeartbeatResponse(
                    error_code=ErrorCode.UNRELEASED_INSTANCE_ID,
                    member_epoch=0,
                    heartbeat_interval_ms=0,
                )
                member.rules.heartbeat_answered(identity, response, now_ms)
            case LookUpCoordinator():
                member.rules.found_coordinator(ErrorCode.NONE, now_ms)
            case Wait(until_ms):
                assert until_ms is not None
                now_ms = until_ms
    assert SESSION_MS <= tried_ms[-1] < SESSION_MS + 2_000
    assert max(after - before for before, after in pairwise(tried_ms)) <= 2_000


@pytest.mark.parametrize(("is_static", "epoch"), [(False, -1), (True, -2)])
def test_a_member_that_is_not_polled_leaves(*, is_static: bool, epoch: int) -> None:
    member = Member(is_static=is_static)
    member.exchange(0)
    action = member.rules.next_action(60_000)
    assert isinstance(action, SendLeave)
    assert action.leave_epoch == epoch
    assert member.kinds() == [FindingKind.POLL_EXPIRED]


def test_the_interval_of_each_response_counts_from_when_its_request_was_sent() -> None:
    member = Member()
    member.exchange(0)
    identity, _ = member.send(5_000)
    response = m.ConsumerGroupHeartbeatResponse(
        error_code=0, member_epoch=1, heartbeat_interval_ms=500
    )
    member.rules.heartbeat_answered(identity, response, 5_200)
    assert member.rules.next_action(5_200) == Wait(5_500)


def test_a_response_for_a_former_membership_changes_nothing() -> None:
    member = Member()
    member.exchange(0)
    identity, _ = member.send(5_000)
    member.rules.end()
    member.rules.begin(Identity(0, "me"), 5_001)
    response = m.ConsumerGroupHeartbeatResponse(
        error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_epoch=0, heartbeat_interval_ms=0
    )
    member.rules.heartbeat_answered(identity, response, 5_002)
    assert member.kinds() == []
    assert member.exchange(5_002).member_epoch == 0
