"""What the coordinator's groups go through, as counts."""

from enum import Enum
from typing import cast

from kohort.broker.metrics.rebalance_collector import RebalanceCollector, history_metrics
from kohort.broker.metrics.rebalances import RebalanceMetrics
from kohort.broker.metrics.text_format import write
from kohort.groups.events import (
    Event,
    GroupRestored,
    JoinPhaseEnd,
    JoinPhaseEnded,
    MemberRef,
    MemberRemoved,
    OffsetsStored,
    RebalanceAvoided,
    RebalanceEnd,
    RebalanceEnded,
    RebalanceStarted,
    RemovalReason,
    SyncReceived,
    Trigger,
    TriggerKind,
)
from kohort.groups.history.model import (
    AvoidedRecord,
    PartitionCounts,
    RebalanceOutcome,
    RebalanceRecord,
    Stopped,
    TriggerRecord,
)
from kohort.groups.kinds import GroupKind
from kohort.groups.reasons import ReasonSource, StatedReason
from kohort.groups.requests import Now
from kohort.protocol.join_reason import JoinReason
from kohort.testing.virtual_clock import VirtualClock
from tests.unit.broker.metrics.sources import History, OtherKind, values

MEMBER = MemberRef("member", None, "client", "/127.0.0.1")


def started(kind: TriggerKind, group_kind: Enum = GroupKind.CLASSIC) -> Event:
    as_kind = cast(GroupKind, group_kind)
    return RebalanceStarted(Trigger(kind), "Stable", 1, (MEMBER,), as_kind)


def join_ended() -> Event:
    return JoinPhaseEnded(JoinPhaseEnd.ALL_JOINED, 2, "range", "member", (MEMBER,), (), ())


def ended(outcome: RebalanceEnd) -> Event:
    return RebalanceEnded(outcome, 2, {})


def observed(
    *events: tuple[int, Event],
    group_id: str = "readers",
    metrics: RebalanceMetrics | None = None,
) -> RebalanceMetrics:
    """Each event with its time in milliseconds."""
    metrics = metrics or RebalanceMetrics()
    for now_ms, event in events:
        if event.__class__ in metrics.observed:
            metrics.observe(group_id, event, Now(now_ms, 1_000_000 + now_ms))
    return metrics


def collected(metrics: RebalanceMetrics) -> dict[str, dict[tuple[str, ...], float]]:
    return values(RebalanceCollector(metrics, lambda: 0.0).collect())


def closed(
    group_id: str = "readers", *, stopped_ms: int = 0, moved: int = 0, is_known: bool = True
) -> RebalanceRecord:
    return RebalanceRecord(
        group=group_id,
        sequence=1,
        previous_generation=1,
        previous_state="Stable",
        started_at_ms=0,
        trigger=TriggerRecord(kind=TriggerKind.MEMBER_LEFT, at_ms=0),
        outcome=RebalanceOutcome.STABLE,
        stopped=Stopped(total_ms=stopped_ms),
        partitions=PartitionCounts(known=is_known, moved=moved),
    )


def test_a_rebalance_counts_by_its_cause_and_its_phases_are_timed() -> None:
    metrics = observed(
        (1000, started(TriggerKind.MEMBER_LEFT)),
        (4000, join_ended()),
        (4000, SyncReceived("member", is_leader=True)),
        (4250, ended(RebalanceEnd.STABLE)),
    )
    assert metrics.started == {"member_left": 1}
    assert metrics.completed_count == 1
    assert (sum(metrics.join_phase.counts), metrics.join_phase.total) == (1, 3.0)
    assert (sum(metrics.sync_phase.counts), metrics.sync_phase.total) == (1, 0.25)


def test_a_group_that_became_empty_has_waited_for_joins_to_the_last() -> None:
    metrics = observed((0, started(TriggerKind.MEMBER_LEFT)), (700, ended(RebalanceEnd.EMPTY)))
    assert (sum(metrics.join_phase.counts), metrics.join_phase.total) == (1, 0.7)
    assert sum(metrics.sync_phase.counts) == 0
    assert (sum(metrics.whole.counts), metrics.whole.total) == (1, 0.7)


def test_superseded_rebalances_are_part_of_the_whole() -> None:
    metrics = observed(
        (0, started(TriggerKind.MEMBER_LEFT)),
        (1000, join_ended()),
        (1500, started(TriggerKind.SYNC_EXPIRED)),
        (2000, join_ended()),
        (2500, ended(RebalanceEnd.STORE_FAILED)),
        (2500, started(TriggerKind.STORE_FAILED)),
        (4000, join_ended()),
        (4500, ended(RebalanceEnd.STABLE)),
    )
    assert (sum(metrics.whole.counts), metrics.whole.total) == (1, 4.5)
    assert metrics.running == {}


def test_a_rebalance_that_hangs_is_shown_since_when_until_it_ends() -> None:
    metrics = observed(
        (0, started(TriggerKind.MEMBER_LEFT)),
        (1000, join_ended()),
        (5000, started(TriggerKind.SYNC_EXPIRED)),
    )
    found = collected(metrics)
    since = "kohort_consumergroup_rebalance_waiting_since_seconds"
    assert found[since] == {("readers",): 1000.0}
    assert found["kohort_rebalances_running"] == {(): 1}
    observed((9000, join_ended()), (9000, ended(RebalanceEnd.STABLE)), metrics=metrics)
    found = collected(metrics)
    assert since not in found
    assert found["kohort_rebalances_running"] == {(): 0}


def test_of_the_rest_the_rebalance_that_hangs_longest_is_shown() -> None:
    metrics = RebalanceMetrics(groups_max=1)
    for now_ms, group_id in ((0, "own"), (2000, "late"), (3000, "later")):
        observed((now_ms, started(TriggerKind.MEMBER_LEFT)), group_id=group_id, metrics=metrics)
    since = collected(metrics)["kohort_consumergroup_rebalance_waiting_since_seconds"]
    assert since == {("own",): 1000.0, ("(other)",): 1002.0}


def test_a_group_made_again_from_the_log_does_not_hang() -> None:
    restored = GroupRestored(1, "consumer", None, {})
    metrics = observed((0, started(TriggerKind.MEMBER_LEFT)), (1, restored))
    assert metrics.running == {}


def test_each_group_has_counts_of_its_own() -> None:
    stated = StatedReason(JoinReason.RESTART, ReasonSource.TAG)
    metrics = observed(
        (0, started(TriggerKind.MEMBER_ADDED)),
        (0, started(TriggerKind.MEMBER_ADDED)),
        (0, RebalanceAvoided(Trigger(TriggerKind.LEADER_REJOINED, reason=stated))),
        (0, MemberRemoved(MEMBER, RemovalReason.LEFT)),
    )
    left = started(TriggerKind.MEMBER_LEFT, OtherKind.OTHER)
    observed((0, left), group_id='b"\\\n', metrics=metrics)
    metrics.on_record(closed(stopped_ms=2500, moved=3))
    found = collected(metrics)
    assert found["kafka_consumergroup_rebalances_total"] == {
        ("readers", "member_added", "classic"): 2,
        ('b"\\\n', "member_left", "other"): 1,
    }
    avoided = found["kohort_consumergroup_rebalances_avoided_total"]
    assert avoided == {("readers", "restart"): 1}
    assert found["kohort_consumergroup_members_removed_total"] == {("readers", "left"): 1}
    stopped = found["kohort_consumergroup_stopped_seconds_total"]
    assert stopped == {("readers",): 2.5, ('b"\\\n',): 0}
    moved = found["kohort_consumergroup_partitions_moved_total"]
    assert moved == {("readers",): 3, ('b"\\\n',): 0}
    text = b"".join(write(RebalanceCollector(metrics).collect())).decode()
    assert 'consumergroup="b\\"\\\\\\n",cause="member_left"' in text


def test_stopped_seconds_and_moved_partitions_come_from_the_records() -> None:
    metrics = observed((0, started(TriggerKind.MEMBER_LEFT)))
    metrics.on_record(closed(stopped_ms=1000, moved=2))
    metrics.on_record(closed(stopped_ms=500, moved=100, is_known=False))
    metrics.on_record(closed("unknown", stopped_ms=250, moved=1))
    trigger = TriggerRecord(kind=TriggerKind.LEADER_REJOINED, at_ms=0)
    metrics.on_record(
        AvoidedRecord(group="readers", sequence=1, generation=1, at_ms=0, trigger=trigger)
    )
    found = collected(metrics)
    assert found["kohort_rebalance_stopped_seconds_total"] == {(): 1.75}
    assert found["kohort_rebalance_partitions_moved_total"] == {(): 3}
    assert found["kohort_consumergroup_stopped_seconds_total"] == {("readers",): 1.5}


def test_rates_are_of_the_last_minute() -> None:
    clock = VirtualClock(monotonic_ms=0)
    metrics = RebalanceMetrics()
    collector = RebalanceCollector(metrics, lambda: clock.monotonic_ms() / 1000)

    def rate() -> float:
        rates = values(collector.collect())
        return rates["kafka_server_group_coordinator_metrics_offset_commit_rate"][()]

    assert rate() == 0
    metrics.offsets_stored = 100
    found = []
    for _ in range(8):
        clock.advance(10_000)
        found.append(rate())
    assert found == [10, 5, 100 / 30, 2.5, 2, 0, 0, 0]


def test_all_of_it_is_shown() -> None:
    stated = StatedReason(JoinReason.RESTART, ReasonSource.TAG)
    metrics = observed(
        (0, started(TriggerKind.MEMBER_ADDED)),
        (0, join_ended()),
        (0, ended(RebalanceEnd.STABLE)),
        (0, RebalanceAvoided(Trigger(TriggerKind.LEADER_REJOINED, reason=stated))),
        (0, MemberRemoved(MEMBER, RemovalReason.SESSION_EXPIRED)),
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
    assert found["kohort_rebalance_phase_seconds_count"] == {
        ("join",): 1,
        ("sync",): 1,
        ("whole",): 1,
        **dict.fromkeys([("assign",), ("reconcile",), ("revoke",), ("notice",)], 0),
    }


def test_how_the_history_fares_is_shown() -> None:
    found = values(history_metrics(History()))
    assert {name: series[()] for name, series in found.items()} == {
        "kohort_rebalance_history_records": 4,
        "kohort_rebalance_history_memory_bytes": 99,
        "kohort_rebalance_history_waiting": 3,
        "kohort_rebalance_history_lost_total": 2,
        "kohort_rebalance_history_dropped_total": 1,
    }


def test_members_that_did_not_poll_are_counted_once() -> None:
    removed = MemberRemoved(MEMBER, RemovalReason.REBALANCE_TIMEOUT)
    left = MemberRemoved(MEMBER, RemovalReason.LEFT)
    stated = MemberRemoved(MEMBER, RemovalReason.LEFT, "consumer poll timeout has expired.")
    begins = started(TriggerKind.MEMBER_ADDED)
    begins_with_leave = RebalanceStarted(
        Trigger(TriggerKind.MEMBER_LEFT, unfetched_ms=15_000), "Stable", 1, (), GroupKind.CLASSIC
    )

    def timeouts(*events: tuple[int, Event]) -> float:
        found = collected(observed((0, begins), (1, ended(RebalanceEnd.STABLE)), *events))
        return found["kohort_consumergroup_poll_timeouts_total"]["readers",]

    assert timeouts((50, left)) == 0
    assert timeouts((50, MemberRemoved(MEMBER, RemovalReason.SESSION_EXPIRED))) == 0
    assert timeouts((50, removed)) == 1
    assert timeouts((50, stated)) == 1
    assert timeouts((50, left), (50, begins_with_leave)) == 1
    # A rebalance waits for members, and one of them leaves.
    assert timeouts((100, begins), (105, left)) == 0
    assert timeouts((100, begins), (100 + 10_000, left)) == 1
    assert timeouts((100, begins), (100 + 10_000, join_ended()), (100 + 10_000, left)) == 0
