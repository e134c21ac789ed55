"""Collects a consumer's state for `health`, `metrics` and `group_metadata`, without waiting."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kohort.client.clock import monotonic_ms
from kohort.client.config import ConsumerConfig
from kohort.client.consumer.health import Health, HealthLimits
from kohort.client.core.backoff import OngoingFailures
from kohort.client.core.errors import IllegalStateError
from kohort.client.core.group.identity import GroupMetadata
from kohort.client.core.group.statistics import Figures, GroupStatistics, HeartbeatStatistics
from kohort.client.core.group.subscription import Subscription, SubscriptionKind
from kohort.client.core.partitions import TopicPartition
from kohort.client.engine.engine import Engine
from kohort.client.group.member import MembershipShell
from kohort.client.processing.figures import RunFigures


def health_of(
    config: ConsumerConfig,
    subscription: Subscription,
    engine: Engine | None,
    run: RunFigures | None,
    *,
    is_closed: bool,
) -> Health:
    """Implements `Consumer.health`; `engine` and `run` may be None."""
    now_ms = monotonic_ms()
    is_by_group = subscription.is_by_group
    member = None if engine is None or not is_by_group else engine.member
    return Health(
        client_id=config.client_id,
        group_id=config.group_id,
        group_instance_id=config.group_instance_id,
        is_subscribed=is_by_group,
        is_assigned=subscription.kind is SubscriptionKind.MANUAL,
        is_closed=is_closed,
        run=run,
        limits=HealthLimits(
            session_timeout_ms=config.session_timeout_ms,
            max_poll_interval_ms=config.max_poll_interval_ms,
        ),
        **({} if engine is None else _reading(engine, subscription.assigned, now_ms)),
        **({} if member is None else _membership(member, now_ms)),
    )


def figures_of(subscription: Subscription, engine: Engine | None) -> Figures:
    """Implements `Consumer.metrics`; `engine` is None before the start."""
    now_ms = monotonic_ms()
    member = None if engine is None else engine.member
    if member is None:
        figures = GroupStatistics().figures(now_ms) | HeartbeatStatistics().figures(now_ms)
    else:
        figures = member.statistics.figures(now_ms) | member.heartbeats.figures(now_ms)
    return {**figures, "assigned-partitions": len(subscription.assigned)}


def metadata_of(config: ConsumerConfig, engine: Engine | None) -> GroupMetadata:
    """Implements `Consumer.group_metadata`; `engine` is None before the start."""
    if config.group_id is None:
        raise IllegalStateError("there is no group without a group_id")
    member = None if engine is None else engine.member
    if member is None:
        return GroupMetadata(config.group_id, group_instance_id=config.group_instance_id)
    identity = member.membership.identity
    return GroupMetadata(
        config.group_id, identity.generation, identity.member_id, config.group_instance_id
    )


def _reading(engine: Engine, assigned: Collection[TopicPartition], now_ms: int) -> dict[str, Any]:
    positions, state = engine.positions, engine.fetcher.state
    failures = state.failures
    partitions = [tp for tp in sorted(assigned) if positions.find(tp) is not None]
    commits = (
        OngoingFailures() if engine.member is None else engine.member.statistics.commit_failures
    )
    return {
        "started_seconds_ago": _since_s(engine.started_s, now_ms),
        "last_poll_seconds_ago": _since_s(engine.housekeeping.done_s, now_ms),
        "poll_failure": engine.poll_failures.now(now_ms),
        "lag": dict.fromkeys(sorted(assigned)) | {tp: positions.lag(tp) for tp in partitions},
        "commit_failure": commits.now(now_ms),
        "failed_commits": commits.total,
        "missing": engine.metadata.missing(now_ms),
        "paused": frozenset(positions.paused()),
        "unread": failures.unread(now_ms),
        "unanswered_seconds": state.unanswered(now_ms),
        "last_fetch_seconds_ago": {tp: _since(failures.answered_ms(tp), now_ms) for tp in assigned},
    }


def _since(then_ms: int | None, now_ms: int) -> float | None:
    return None if then_ms is None else (now_ms - then_ms) / 1000


def _since_s(then_s: float | None, now_ms: int) -> float | None:
    return None if then_s is None else max(0.0, now_ms / 1000 - then_s)


def _membership(member: MembershipShell, now_ms: int) -> dict[str, Any]:
    membership, statistics = member.membership, member.statistics
    address = member.coordinator.address
    lasted_ms, heartbeat_trouble = statistics.last_duration_ms, member.heartbeats.trouble
    trouble = membership.trouble
    if heartbeat_trouble and not trouble:
        trouble = f"Heartbeat: {heartbeat_trouble.name}"

    def since(then_ms: int | None) -> float | None:
        return _since(then_ms, now_ms)

    return {
        "error": None if membership.failure is None else str(membership.failure),
        "member_state": membership.state,
        "generation": membership.identity.generation,
        "member_id": membership.identity.member_id,
        "is_leader": membership.is_leader,
        "group_protocol": member.protocol,
        "unsettled_seconds": since(statistics.unsettled_since_ms),
        "group_error": trouble or None,
        "coordinator": None if address is None else f"{address.host}:{address.port}",
        "last_heartbeat_seconds_ago": since(member.heartbeats.last_success_ms),
        "rebalance_phase": statistics.phase,
        "rebalance_phase_seconds": since(statistics.phase_since_ms),
        "rebalance_seconds": since(statistics.rebalance_began_ms),
        "rebalance_cause": statistics.cause,
        "last_rebalance_cause": statistics.last_cause,
        "last_rebalance_duration_seconds": None if lasted_ms is None else lasted_ms / 1000,
        "last_rebalance_seconds_ago": since(statistics.last_rebalance_ms),
    }
