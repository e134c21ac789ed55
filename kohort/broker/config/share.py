"""Settings of share groups, and the configs of a share group that no setting of the broker has."""

import re
from itertools import pairwise
from typing import Final

from kohort.broker.config.settings import Settings

EARLIEST: Final = -2
LATEST: Final = -1

_DURATION: Final = (
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d+)D)?"
    r"(?:T(?=[-+\d])(?:(?P<hours>[-+]?\d+)H)?(?:(?P<minutes>[-+]?\d+)M)?"
    r"(?:(?P<seconds>[-+]?\d+)(?:[.,](?P<fraction>\d{0,9}))?S)?)?"
)
"""ISO 8601 as Java's `Duration.parse` reads it. Compiled only when a group has a duration."""

_SECONDS_MAX: Final = 2**63 - 1


def reset_policy(text: str) -> int:
    """Return a `share.auto.offset.reset` as EARLIEST, LATEST or a duration in milliseconds.

    Raises:
        ValueError: it is none of these.
    """
    if text in {"earliest", "latest"}:
        return EARLIEST if text == "earliest" else LATEST
    duration_ms = _duration_ms(text.removeprefix("by_duration:"))
    if not text.startswith("by_duration:") or duration_ms is None:
        raise ValueError(
            f"Invalid value `{text}` for configuration share.auto.offset.reset. The value must be "
            "either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."
        )
    return duration_ms


def _duration_ms(text: str) -> int | None:
    """Return a duration; None if it is malformed, negative or too long for Java."""
    match = re.fullmatch(_DURATION, text, re.ASCII | re.IGNORECASE)
    if match is None or not any(
        match[unit] is not None for unit in ("days", "hours", "minutes", "seconds")
    ):
        return None
    days, hours, minutes, seconds = (
        int(match[unit] or 0) for unit in ("days", "hours", "minutes", "seconds")
    )
    nanos = int((match["fraction"] or "").ljust(9, "0"))
    if (match["seconds"] or "").startswith("-"):
        nanos = -nanos
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    if abs(whole) > _SECONDS_MAX:
        return None
    total = whole * 10**9 + nanos
    if match["sign"] == "-":
        total = -total
    return None if total < 0 else total // 10**6


class ShareSettings(Settings):
    """Share groups."""

    group_share_session_timeout_ms: int
    group_share_min_session_timeout_ms: int
    group_share_max_session_timeout_ms: int
    group_share_heartbeat_interval_ms: int
    group_share_min_heartbeat_interval_ms: int
    group_share_max_heartbeat_interval_ms: int
    group_share_assignment_interval_ms: int
    group_share_min_assignment_interval_ms: int
    group_share_max_assignment_interval_ms: int
    group_share_record_lock_duration_ms: int
    group_share_min_record_lock_duration_ms: int
    group_share_max_record_lock_duration_ms: int
    group_share_delivery_count_limit: int
    group_share_min_delivery_count_limit: int
    group_share_max_delivery_count_limit: int
    group_share_partition_max_record_locks: int
    group_share_min_partition_max_record_locks: int
    group_share_max_partition_max_record_locks: int
    group_share_max_size: int
    group_share_max_share_sessions: int
    errors_deadletterqueue_topic_name_prefix: str
    errors_deadletterqueue_auto_create_topics_enable: bool
    share_coordinator_state_topic_num_partitions: int
    share_coordinator_state_topic_segment_bytes: int
    share_coordinator_snapshot_update_records_per_snapshot: int
    share_coordinator_cold_partition_snapshot_interval_ms: int
    share_coordinator_state_topic_prune_interval_ms: int


class ShareGroupConfigs(Settings, checks={"share.auto.offset.reset": reset_policy}):
    """Configs of share groups without a setting of the broker."""

    errors_deadletterqueue_topic_name: str
    errors_deadletterqueue_copy_record_enable: bool
    share_auto_offset_reset: str
    share_isolation_level: str
    share_renew_acknowledge_enable: bool
    share_assignor_offload_enable: bool


BOUNDED: Final = (
    "assignment.interval.ms",
    "delivery.count.limit",
    "heartbeat.interval.ms",
    "partition.max.record.locks",
    "record.lock.duration.ms",
    "session.timeout.ms",
)
"""Settings that have a smallest and a largest value."""


def share_problems(config: ShareSettings) -> list[str]:
    """Return the errors in combinations of the settings of share groups."""
    errors = []
    for bounded in BOUNDED:
        for low, high in pairwise(f"group.share.{end}{bounded}" for end in ("min.", "", "max.")):
            if number_of(config, low) > number_of(config, high):
                errors.append(f"{low} must be less than or equal to {high}")
    if config.group_share_heartbeat_interval_ms >= config.group_share_session_timeout_ms:
        errors.append(
            "group.share.heartbeat.interval.ms must be less than group.share.session.timeout.ms"
        )
    if config.group_share_max_share_sessions < config.group_share_max_size:
        errors.append(
            "group.share.max.share.sessions must be greater than or equal to group.share.max.size"
        )
    return errors


def number_of(config: Settings, name: str) -> int:
    """Return the value of an integer setting by Kafka's name."""
    value: int = getattr(config, name.replace(".", "_"))
    return value
