"""Settings of consumer groups and of the offsets that they commit."""

from kohort.broker.config.settings import INT_MAX, Int, Long, Settings, setting


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
