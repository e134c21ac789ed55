"""Settings of share groups, and configs of share groups that have no equivalent broker setting."""

import re
from itertools import pairwise
from typing import Final

from kohort.broker.config.settings import Boolean, Int, Settings, String, setting

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

    group_share_session_timeout_ms: Int = setting(
        45_000,
        at_least=1,
        doc="A member of a share group (KIP-932) is removed after this long without a heartbeat. "
        "A group's `share.session.timeout.ms` overrides it.",
    )
    group_share_min_session_timeout_ms: Int = setting(
        45_000, at_least=1, doc="Smallest `share.session.timeout.ms` of a group."
    )
    group_share_max_session_timeout_ms: Int = setting(
        60_000, at_least=1, doc="Largest `share.session.timeout.ms` of a group."
    )
    group_share_heartbeat_interval_ms: Int = setting(
        5_000,
        at_least=1,
        doc="Longest heartbeat interval of members of share groups; see "
        "`group.consumer.heartbeat.interval.ms`.",
    )
    group_share_min_heartbeat_interval_ms: Int = setting(
        5_000, at_least=1, doc="Smallest `share.heartbeat.interval.ms` of a group."
    )
    group_share_max_heartbeat_interval_ms: Int = setting(
        15_000, at_least=1, doc="Largest `share.heartbeat.interval.ms` of a group."
    )
    group_share_assignment_interval_ms: Int = setting(
        1_000,
        at_least=0,
        dynamic=True,
        doc="Least time between two assignments of a share group. A group's "
        "`share.assignment.interval.ms` overrides it.",
    )
    group_share_min_assignment_interval_ms: Int = setting(
        0, at_least=0, doc="Smallest `share.assignment.interval.ms` of a group."
    )
    group_share_max_assignment_interval_ms: Int = setting(
        15_000, at_least=0, doc="Largest `share.assignment.interval.ms` of a group."
    )
    group_share_record_lock_duration_ms: Int = setting(
        30_000,
        at_least=1_000,
        at_most=3_600_000,
        doc="Duration of the acquisition lock of a record. A group's "
        "`share.record.lock.duration.ms` overrides it.",
    )
    group_share_min_record_lock_duration_ms: Int = setting(
        15_000,
        at_least=1_000,
        at_most=30_000,
        doc="Smallest `share.record.lock.duration.ms` of a group.",
    )
    group_share_max_record_lock_duration_ms: Int = setting(
        60_000,
        at_least=30_000,
        at_most=3_600_000,
        doc="Largest `share.record.lock.duration.ms` of a group.",
    )
    group_share_delivery_count_limit: Int = setting(
        5,
        at_least=2,
        at_most=10,
        doc="Maximum number of deliveries of a record. A group's `share.delivery.count.limit` "
        "overrides it.",
    )
    group_share_min_delivery_count_limit: Int = setting(
        2, at_least=2, at_most=5, doc="Smallest `share.delivery.count.limit` of a group."
    )
    group_share_max_delivery_count_limit: Int = setting(
        10, at_least=5, at_most=25, doc="Largest `share.delivery.count.limit` of a group."
    )
    group_share_partition_max_record_locks: Int = setting(
        2_000,
        at_least=100,
        at_most=10_000,
        doc="Maximum number of in-flight records of a share-partition. A group's "
        "`share.partition.max.record.locks` overrides it.",
    )
    group_share_min_partition_max_record_locks: Int = setting(
        100,
        at_least=100,
        at_most=2_000,
        doc="Smallest `share.partition.max.record.locks` of a group.",
    )
    group_share_max_partition_max_record_locks: Int = setting(
        4_000,
        at_least=2_000,
        at_most=10_000,
        doc="Largest `share.partition.max.record.locks` of a group.",
    )
    group_share_max_size: Int = setting(
        200,
        at_least=1,
        at_most=1_000,
        doc="Maximum number of members of a share group; further ones get GROUP_MAX_SIZE_REACHED.",
    )
    group_share_max_share_sessions: Int = setting(
        2_000,
        at_least=1,
        doc="Maximum number of share sessions of all groups; further ones get "
        "SHARE_SESSION_LIMIT_REACHED.",
    )
    errors_deadletterqueue_topic_name_prefix: String = setting(
        "dlq.",
        dynamic=True,
        doc="Name prefix of dead-letter topics (KIP-1191).",
    )
    errors_deadletterqueue_auto_create_topics_enable: Boolean = setting(
        False, dynamic=True, doc="Whether the broker creates missing dead-letter topics."
    )
    share_coordinator_state_topic_num_partitions: Int = setting(
        50,
        at_least=1,
        doc="Partitions of __share_group_state when it is created. Do not change it afterwards.",
    )
    share_coordinator_state_topic_segment_bytes: Int = setting(
        104_857_600,
        at_least=1,
        doc="segment.bytes of __share_group_state when it is created.",
    )
    share_coordinator_snapshot_update_records_per_snapshot: Int = setting(
        500,
        at_least=0,
        at_most=500,
        doc="Updates of a share-partition's state between two snapshots.",
    )
    share_coordinator_cold_partition_snapshot_interval_ms: Int = setting(
        300_000,
        at_least=1,
        internal=True,
        doc="A share-partition whose state has not changed for this long gets a snapshot, so that "
        "older records of the topic can be deleted.",
    )
    share_coordinator_state_topic_prune_interval_ms: Int = setting(
        300_000,
        at_least=1,
        internal=True,
        doc="How often records that no longer matter are deleted from __share_group_state.",
    )


class ShareGroupConfigs(Settings):
    """Configs of share groups that have no equivalent broker setting."""

    errors_deadletterqueue_topic_name: String = setting(
        "",
        doc="Topic for records that are rejected, or not accepted within the delivery limit.",
    )
    errors_deadletterqueue_copy_record_enable: Boolean = setting(
        False, doc="Whether dead letters have key and value."
    )
    share_auto_offset_reset: String = setting(
        "latest",
        check=reset_policy,
        doc="Initial start offset of share-partitions: `earliest`, `latest`, or an ISO 8601 "
        "duration before now, such as `by_duration:PT1H`.",
    )
    share_isolation_level: String = setting(
        "read_uncommitted",
        one_of=("read_committed", "read_uncommitted"),
        doc="Whether a share group leaves out records of aborted and open transactions.",
    )
    share_renew_acknowledge_enable: Boolean = setting(
        True, doc="Whether members may renew acquisition locks."
    )
    share_assignor_offload_enable: Boolean = setting(
        True,
        internal=True,
        honoured=False,
        doc="Assignments are always computed on the event loop.",
    )


BOUNDED: Final = (
    "assignment.interval.ms",
    "delivery.count.limit",
    "heartbeat.interval.ms",
    "partition.max.record.locks",
    "record.lock.duration.ms",
    "session.timeout.ms",
)
"""Group configs, without the prefix `share.`, whose range is set by two broker settings."""


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
    """Return the value of the integer setting with this Kafka name."""
    value: int = getattr(config, name.replace(".", "_"))
    return value
