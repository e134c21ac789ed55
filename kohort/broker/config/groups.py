"""Settings of consumer groups and of the offsets that they commit."""

from typing import Final

from kohort.broker.config.settings import Settings

ASSIGNORS: Final = ("uniform", "range")
MIGRATION_POLICIES: Final = ("bidirectional", "upgrade", "downgrade", "disabled")


def _check_protocols(names: tuple[str, ...]) -> None:
    if "classic" not in names:
        raise ValueError("must contain classic")


def _check_assignors(names: tuple[str, ...]) -> None:
    if not names or not set(names) <= set(ASSIGNORS):
        known = ", ".join(ASSIGNORS)
        raise ValueError(f"must be a list of {known}; assignors in Java are not supported")


def _check_policy(name: str) -> None:
    if name.lower() not in MIGRATION_POLICIES:
        raise ValueError(f"must be one of {', '.join(MIGRATION_POLICIES)}")


class GroupSettings(
    Settings,
    checks={
        "group.coordinator.rebalance.protocols": _check_protocols,
        "group.consumer.assignors": _check_assignors,
        "group.consumer.migration.policy": _check_policy,
    },
):
    """Consumer groups."""

    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_initial_rebalance_delay_ms: int
    group_max_size: int
    offset_metadata_max_bytes: int
    offsets_topic_num_partitions: int
    offsets_topic_segment_bytes: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    offsets_commit_timeout_ms: int
    group_coordinator_rebalance_protocols: tuple[str, ...]
    group_consumer_session_timeout_ms: int
    group_consumer_min_session_timeout_ms: int
    group_consumer_max_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_min_heartbeat_interval_ms: int
    group_consumer_max_heartbeat_interval_ms: int
    group_consumer_assignment_interval_ms: int
    group_consumer_min_assignment_interval_ms: int
    group_consumer_max_assignment_interval_ms: int
    group_consumer_max_size: int
    group_consumer_assignors: tuple[str, ...]
    group_consumer_migration_policy: str
    group_consumer_regex_refresh_interval_ms: int
