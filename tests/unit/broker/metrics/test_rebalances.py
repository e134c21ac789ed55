"""What the coordinator's groups go through, as counts."""

from broker.core.group.events import (
    Event,
    Fate,
    GroupRemoved,
    JoinPhaseEnd,
    JoinPhaseEnded,
    MemberRef,
    MemberRemoved,
    OffsetsRemoved,
    OffsetsStored,
    Outcome,
    RebalanceAvoided,
    RebalanceEnded,
    RebalanceStarted,
    SyncReceived,
    Trigger,
    TriggerKind,
)
from broker.core.group.reasons import ReasonSource, StatedReason
from broker.core.group.requests import Now
from broker.core.group.states import GroupState
from broker.metrics.rebalance_collector import RebalanceCollector
from broker.metrics.rebalances import RebalanceMetrics
from protocol.join_reason import JoinReason
from tests.unit.broker.metrics.sources import values

MEMBER = MemberRef("member", None, "client", "/127.0.0.1")


def started(kind: TriggerKind) -> Event:
    return RebalanceStarted(Trigger(kind), GroupState.STABLE, 1, (MEMBER,))


def join_ended() -> Event:
    return JoinPhaseEnded(JoinPhaseEnd.ALL_JOINED, 2, "range", "member", (MEMBER,), (), ())


def ended(outcome: Outcome) -> Event:
    return RebalanceEnded(outcome, 2, {})


def observed(*events: tuple[int, Event], group_id: str = "readers") -> RebalanceMetrics:
    """Each event with its time in milliseconds."""
    metrics = RebalanceMetrics()
    for now_ms, event in events:
        metrics.observe(group_id, event, Now(now_ms, 0))
    return metrics


def test_a_rebalance_counts_by_its_cause_and_its_phases_are_timed() -> None:
    metrics = observed(
        (1000, started(TriggerKind.MEMBER_LEFT)),
        (4000, join_ended()),
        (4000, SyncReceived("member", is_leader=True)),
        (4250, ended(Outcome.STABLE)),
    )
    assert metrics.started == {"member_left": 1}
    assert metrics.completed_count == 1
    assert (sum(metrics.join_phase.counts), metrics.join_phase.total) == (1, 3.0)
    assert (sum(metrics.sync_phase.counts), metrics.sync_phase.total) == (1, 0.25)


def test_a_rebalance_that_is_superseded_is_not_completed() -> None:
    metrics = observed(
        (0, started(TriggerKind.MEMBER_LEFT)),
        (1000, join_ended()),
        (1500, started(TriggerKind.SYNC_EXPIRED)),
        (2000, join_ended()),
        (2000, ended(Outcome.STORE_FAILED)),
        (3000, ended(Outcome.EMPTY)),
    )
    assert metrics.started == {"member_left": 1, "sync_expired": 1}
    assert metrics.completed_count == 0
    assert (sum(metrics.join_phase.counts), metrics.join_phase.total) == (2, 1.5)


def test_groups_that_are_gone_leave_nothing_behind() -> None:
    metrics = observed((0, started(TriggerKind.MEMBER_LEFT)), (1, GroupRemoved(expired=True)))
    assert metrics._phase_began_ms == {}


def test_offsets_are_counted_one_by_one() -> None:
    metrics = observed(
        (0, OffsetsStored(5)),
        (0, OffsetsStored(2)),
        (0, OffsetsRemoved(3, expired=True)),
        (0, OffsetsRemoved(1, expired=False)),
    )
    counts = metrics.offsets_stored, metrics.offsets_expired, metrics.offsets_deleted
    assert counts == (7, 3, 1)


def test_all_of_it_is_shown() -> None:
    stated = StatedReason(JoinReason.RESTART, ReasonSource.TAG)
    metrics = observed(
        (0, started(TriggerKind.MEMBER_ADDED)),
        (0, join_ended()),
        (0, ended(Outcome.STABLE)),
        (0, RebalanceAvoided(Trigger(TriggerKind.LEADER_REJOINED, reason=stated))),
        (0, MemberRemoved(MEMBER, Fate.SESSION_EXPIRED)),
        (0, OffsetsStored(5)),
    )
    found = values(RebalanceCollector(metrics).collect())
    coordinator = "kafka_server_group_coordinator_metrics"
    assert found[f"{coordinator}_group_completed_rebalance_count"] == {(): 1}
    assert found[f"{coordinator}_offset_commit_count"] == {(): 5}
    assert found[f"{coordinator}_offset_expiration_count"] == {(): 0}
    assert found[f"{coordinator}_offset_deletion_count"] == {(): 0}
    assert found["kohort_rebalances_started_total"] == {("member_added",): 1}
    assert found["kohort_rebalances_avoided_total"] == {("leader_rejoined", "restart"): 1}
    assert found["kohort_group_members_removed_total"] == {("session_expired",): 1}
    assert found["kohort_rebalance_phase_seconds_count"] == {("join",): 1, ("sync",): 1}
