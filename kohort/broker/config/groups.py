"""Settings of consumer groups and of the offsets that they commit."""

from typing import Final

from kohort.broker.config.settings import INT_MAX, Int, List, Long, Settings, String, setting

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


class GroupSettings(Settings):
    """Consumer groups."""

    group_min_session_timeout_ms: Int = setting(
        6000,
        doc="Shortest session timeout that a member may request; a shorter one is answered "
        "with INVALID_SESSION_TIMEOUT.",
    )
    group_max_session_timeout_ms: Int = setting(
        1_800_000,
        doc="Longest session timeout that a member may request; a longer one is answered "
        "with INVALID_SESSION_TIMEOUT.",
    )
    group_initial_rebalance_delay_ms: Int = setting(
        3000,
        doc="Wait this long for more members before the first assignment of an empty group, again "
        "for each that arrives, up to the group's rebalance timeout.",
    )
    group_max_size: Int = setting(
        INT_MAX,
        at_least=1,
        doc="Maximum number of members of a group; further ones get GROUP_MAX_SIZE_REACHED.",
    )
    offset_metadata_max_bytes: Int = setting(
        4096,
        doc="Longest metadata that may be committed with an offset; longer ones are "
        "answered with OFFSET_METADATA_TOO_LARGE.",
    )
    offsets_topic_num_partitions: Int = setting(
        50,
        at_least=1,
        doc="Partitions of __consumer_offsets when it is created; each group is stored in "
        "one of them. Do not change it afterwards.",
    )
    offsets_topic_segment_bytes: Int = setting(
        104_857_600,
        at_least=1,
        doc="segment.bytes of __consumer_offsets when it is created; a value below 1048576, the "
        "minimum of every topic, is raised to it.",
    )
    offsets_retention_minutes: Int = setting(
        10_080,
        at_least=1,
        doc="Offsets of a group without members, and of topics to which its members no "
        "longer subscribe, are deleted after this time.",
    )
    offsets_retention_check_interval_ms: Long = setting(
        600_000, at_least=1, doc="How often expired offsets are deleted."
    )
    offsets_commit_timeout_ms: Int = setting(
        5000, at_least=1, doc="Longest wait for a commit to be stored before it fails."
    )
    group_coordinator_rebalance_protocols: List = setting(
        ("classic", "consumer", "streams"),
        one_of=("consumer", "classic", "share", "streams"),
        check=_check_protocols,
        doc="Protocols of groups. Without `consumer`, ConsumerGroupHeartbeat is answered with "
        "UNSUPPORTED_VERSION. `share` and `streams` have no effect: share groups are always "
        "served, streams groups not yet.",
    )
    group_consumer_session_timeout_ms: Int = setting(
        45_000,
        at_least=1,
        doc="A member of a consumer group (KIP-848) is removed after this long without a "
        "heartbeat. A group's `consumer.session.timeout.ms` overrides it.",
    )
    group_consumer_min_session_timeout_ms: Int = setting(
        45_000, at_least=1, doc="Smallest `consumer.session.timeout.ms` of a group."
    )
    group_consumer_max_session_timeout_ms: Int = setting(
        60_000, at_least=1, doc="Largest `consumer.session.timeout.ms` of a group."
    )
    group_consumer_heartbeat_interval_ms: Int = setting(
        5_000,
        at_least=1,
        doc="Longest heartbeat interval of members of consumer groups. It is shorter while there "
        "are few members, see `kohort.group.consumer.heartbeats.per.second`; a group's "
        "`consumer.heartbeat.interval.ms` overrides both.",
    )
    group_consumer_min_heartbeat_interval_ms: Int = setting(
        5_000, at_least=1, doc="Smallest `consumer.heartbeat.interval.ms` of a group."
    )
    group_consumer_max_heartbeat_interval_ms: Int = setting(
        15_000, at_least=1, doc="Largest `consumer.heartbeat.interval.ms` of a group."
    )
    group_consumer_assignment_interval_ms: Int = setting(
        1_000,
        at_least=0,
        dynamic=True,
        doc="Least time between two assignments of a consumer group, so that members that join "
        "together share one. A group's `consumer.assignment.interval.ms` overrides it.",
    )
    group_consumer_min_assignment_interval_ms: Int = setting(
        0, at_least=0, doc="Smallest `consumer.assignment.interval.ms` of a group."
    )
    group_consumer_max_assignment_interval_ms: Int = setting(
        15_000, at_least=0, doc="Largest `consumer.assignment.interval.ms` of a group."
    )
    group_consumer_max_size: Int = setting(
        INT_MAX,
        at_least=1,
        doc="Maximum number of members of a consumer group; further ones get "
        "GROUP_MAX_SIZE_REACHED.",
    )
    group_consumer_assignors: List = setting(
        ASSIGNORS,
        check=_check_assignors,
        doc="Assignors of consumer groups; the first is used unless members ask for another.",
    )
    group_consumer_migration_policy: String = setting(
        "bidirectional",
        check=_check_policy,
        doc="Whether groups with members change between the classic and the consumer protocol "
        "when members with the other protocol join: `bidirectional`, `upgrade`, `downgrade` "
        "or `disabled`.",
    )
    group_consumer_regex_refresh_interval_ms: Int = setting(
        600_000,
        at_least=10_000,
        internal=True,
        doc="How often the regular expressions of consumer groups are matched again if no topic "
        "was created.",
    )
