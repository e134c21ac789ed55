import math
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from kohort.client.core.backoff import Backoff, OngoingFailure
from kohort.client.core.errors import AuthorizationError, CommitFailedError
from kohort.client.core.group.actions import Idle, Join, MemberAction, Prepare, Sync
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.heartbeat import HeartbeatRules, SendHeartbeat
from kohort.client.core.group.identity import NO_MEMBER, Identity
from kohort.client.core.group.statistics import (
    WINDOW_COUNT,
    WINDOW_MS,
    GroupStatistics,
    HeartbeatStatistics,
    RebalancePhase,
    Sampled,
)
from kohort.protocol.errors import ErrorCode
from tests.support import messages as m

JAVA_NAMES = {
    *("heartbeat-rate", "heartbeat-total", "heartbeat-response-time-max"),
    *("join-time-avg", "join-time-max", "join-rate", "join-total"),
    *("sync-time-avg", "sync-time-max", "sync-rate", "sync-total"),
    *("rebalance-latency-avg", "rebalance-latency-max", "rebalance-latency-total"),
    *("rebalance-total", "rebalance-rate-per-hour"),
    *("failed-rebalance-total", "failed-rebalance-rate-per-hour"),
    *("last-rebalance-seconds-ago", "last-heartbeat-seconds-ago"),
    *("commit-latency-avg", "commit-latency-max", "commit-rate", "commit-total"),
}


def test_the_names_are_those_of_javas_consumer() -> None:
    figures = GroupStatistics().figures(0) | HeartbeatStatistics().figures(0)
    assert set(figures) == JAVA_NAMES


JOIN = Join(
    NO_MEMBER,
    m.JoinGroupRequest(
        group_id="g", session_timeout_ms=1, member_id="", protocol_type="", protocols=[]
    ),
)
SYNC = Sync(
    NO_MEMBER, m.SyncGroupRequest(group_id="g", generation_id=1, member_id="", assignments=[])
)
NONE, FAILED = ErrorCode.NONE, ErrorCode.NETWORK_EXCEPTION


def rebalance(
    statistics: GroupStatistics, begin_ms: int, *, join_ms: int, sync_ms: int, cause: str = "why"
) -> int:
    """One that goes well; when it ends."""
    statistics.begun(JOIN, cause, begin_ms)
    statistics.join_answered(NONE, begin_ms + join_ms)
    statistics.begun(SYNC, cause, begin_ms + join_ms)
    end_ms = begin_ms + join_ms + sync_ms
    statistics.sync_answered(NONE, end_ms)
    return end_ms


def test_joins_syncs_and_rebalances_are_timed() -> None:
    statistics = GroupStatistics()
    rebalance(statistics, 1_000, join_ms=300, sync_ms=20)
    end_ms = rebalance(statistics, 5_000, join_ms=100, sync_ms=40, cause="enforced")
    figures = statistics.figures(end_ms + 2_000)
    assert figures["join-total"] == figures["sync-total"] == figures["rebalance-total"] == 2
    assert (figures["join-time-avg"], figures["join-time-max"]) == (200, 300)
    assert (figures["sync-time-avg"], figures["sync-time-max"]) == (30, 40)
    assert (figures["rebalance-latency-avg"], figures["rebalance-latency-max"]) == (230, 320)
    assert figures["rebalance-latency-total"] == 460
    assert figures["last-rebalance-seconds-ago"] == 2
    assert (statistics.last_cause, statistics.last_duration_ms) == ("enforced", 140)


def test_failed_attempts_are_counted_and_do_not_restart_the_clock() -> None:
    statistics = GroupStatistics()
    statistics.begun(JOIN, "first words", 0)
    statistics.join_answered(FAILED, 500)
    statistics.begun(JOIN, "first words", 600)
    statistics.join_answered(NONE, 700)
    statistics.begun(SYNC, "first words", 700)
    statistics.sync_answered(ErrorCode.REBALANCE_IN_PROGRESS, 800)
    rebalance(statistics, 1_000, join_ms=100, sync_ms=50, cause="a later attempt")
    figures = statistics.figures(2_000)
    assert figures["failed-rebalance-total"] == 2
    assert figures["rebalance-total"] == 1
    assert figures["rebalance-latency-max"] == 1_150
    assert statistics.last_cause == "first words"


def test_being_given_a_member_id_is_half_of_a_join_and_no_failure() -> None:
    statistics = GroupStatistics()
    statistics.begun(JOIN, "why", 0)
    statistics.join_answered(ErrorCode.MEMBER_ID_REQUIRED, 10)
    figures = statistics.figures(20)
    assert figures["join-total"] == figures["failed-rebalance-total"] == 0


def test_a_rebalance_that_the_consumer_walks_out_of_is_none() -> None:
    statistics = GroupStatistics()
    statistics.begun(JOIN, "why", 0)
    assert (statistics.cause, statistics.rebalance_began_ms) == ("why", 0)
    statistics.saw(50, is_settled=False)
    statistics.left(100)
    assert (statistics.cause, statistics.rebalance_began_ms) == (None, None)
    assert statistics.unsettled_since_ms is None
    assert statistics.phase is RebalancePhase.NONE
    assert statistics.figures(300)["rebalance-total"] == 0


def test_a_phase_is_as_old_as_when_it_was_entered_first() -> None:
    statistics = GroupStatistics()
    prepare = Prepare(None, frozenset(), frozenset())
    seen = []
    actions: list[MemberAction] = [prepare, prepare, JOIN, SYNC, SYNC]
    for at_ms, action in enumerate(actions):
        statistics.begun(action, "why", at_ms)
        seen.append((statistics.phase, statistics.phase_since_ms))
    assert seen == [
        (RebalancePhase.PREPARING, 0),
        (RebalancePhase.PREPARING, 0),
        (RebalancePhase.JOINING, 2),
        (RebalancePhase.SYNCING, 3),
        (RebalancePhase.SYNCING, 3),
    ]


def test_waiting_for_another_attempt_is_part_of_the_phase_and_being_done_is_not() -> None:
    statistics = GroupStatistics()
    statistics.begun(JOIN, "why", 0)
    statistics.begun(Idle(500), "why", 100)
    assert statistics.phase is RebalancePhase.JOINING
    statistics.begun(Idle(), "", 200)
    assert (statistics.phase, statistics.phase_since_ms) == (RebalancePhase.NONE, 200)


def test_being_unsettled_counts_from_when_it_was_noticed_first() -> None:
    statistics = GroupStatistics()
    statistics.saw(10, is_settled=False)
    statistics.saw(20, is_settled=False)
    assert statistics.unsettled_since_ms == 10
    statistics.saw(30, is_settled=True)
    assert statistics.unsettled_since_ms is None


def test_a_rate_is_not_made_large_by_a_short_time() -> None:
    sampled = Sampled()
    sampled.record(1, 0)
    assert sampled.per_second(1) == 1000 / WINDOW_MS


def test_what_is_old_is_counted_and_not_measured() -> None:
    sampled = Sampled()
    sampled.record(500, 0)
    later_ms = WINDOW_COUNT * WINDOW_MS
    assert sampled.highest(later_ms - 1) == 500
    assert sampled.highest(later_ms) is None
    assert sampled.average(later_ms) is None
    assert sampled.per_second(later_ms) == 0
    assert (sampled.count, sampled.total) == (1, 500)


@given(gaps=st.lists(st.integers(0, 40_000), min_size=1, max_size=200))
def test_whatever_the_times_what_is_measured_is_of_the_last_minute(gaps: list[int]) -> None:
    sampled = Sampled()
    times: list[int] = []
    for at_ms in accumulate(gaps):
        times.append(at_ms)
        sampled.record(at_ms, at_ms)
        lately = [one for one in times if at_ms - WINDOW_COUNT * WINDOW_MS < one]
        surely = [one for one in lately if at_ms - one < (WINDOW_COUNT - 1) * WINDOW_MS]
        average = sampled.average(at_ms)
        assert average is not None
        assert math.fsum(surely) / len(surely) >= average >= math.fsum(lately) / len(lately)
        assert sampled.highest(at_ms) == at_ms
        assert sampled.per_second(at_ms) * WINDOW_MS <= len(lately) * 1000
    assert sampled.count == len(times)


def test_heartbeats_that_show_life_are_timed_from_when_they_were_sent() -> None:
    rules = HeartbeatRules(MembershipConfig("g"), Backoff(100, 1_000, lambda: 0.5))
    me = Identity(1, "me", "range")
    rules.begin(me, 0)
    assert rules.next_action(3_000) == SendHeartbeat(me)
    rules.answered(me, ErrorCode.NONE, 3_040)
    assert rules.next_action(6_000) == SendHeartbeat(me)
    rules.answered(me, ErrorCode.REBALANCE_IN_PROGRESS, 6_010)
    assert rules.next_action(9_000) == SendHeartbeat(me)
    rules.answered(me, ErrorCode.UNKNOWN_MEMBER_ID, 9_900)
    figures = rules.statistics.figures(10_010)
    assert figures["heartbeat-total"] == 2
    assert figures["heartbeat-response-time-max"] == 40
    assert figures["last-heartbeat-seconds-ago"] == 4


def test_refused_commits_are_counted_until_one_succeeds() -> None:
    statistics = GroupStatistics()
    refused = AuthorizationError("no READ", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    statistics.commit_failed(refused, 1_000)
    statistics.commit_failed(refused, 2_000)
    failing = statistics.commit_failures.now(2_000)
    assert failing == OngoingFailure("no READ", 2, 1.0, is_refused=True)
    assert statistics.figures(2_000)["commit-total"] == 0
    statistics.committed(5, 3_000)
    assert statistics.commit_failures.now(3_000) is None
    assert statistics.figures(3_000)["commit-total"] == 1
    statistics.commit_failed(CommitFailedError("gone", ErrorCode.UNKNOWN_MEMBER_ID), 4_000)
    failing = statistics.commit_failures.now(4_000)
    assert failing is not None
    assert not failing.is_refused
    assert statistics.commit_failures.total == 3
