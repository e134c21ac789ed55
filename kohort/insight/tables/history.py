"""Tables of the history's events. Rows are written once and never change."""

from typing import Final

from kohort.insight.tables.columns import (
    BYTES,
    FLAG,
    MOMENT,
    SMALL,
    TEXT,
    TEXTS,
    WHOLE,
    Column,
    ListOf,
    Table,
    struct,
)

CLUSTER: Final = Column("cluster_id", TEXT, "Kafka cluster id, or `--cluster-id` of a file.")
GROUP: Final = Column("group", TEXT, "Group id.")
SEQUENCE: Final = Column(
    "sequence",
    WHOLE,
    "Number of the event in its group; avoided rebalances count too.",
)
IDENTITY: Final = (CLUSTER, GROUP, SEQUENCE)
EVENT_KEY: Final = tuple(column.name for column in IDENTITY)

SOURCE: Final = (
    Column("topic", TEXT, "Topic or file that the event was read from."),
    Column("partition", SMALL, "Partition of the topic; 0 for a file."),
    Column("offset", WHOLE, "Offset in the partition; for a file, the line number from 0."),
)

_TRIGGER: Final = (
    Column("trigger_kind", TEXT, "Observed cause (`kind`)."),
    Column("trigger_at", MOMENT, "Time of the cause."),
    Column("trigger_member_id", TEXT, "Member that caused it; null if no single member did."),
    Column("trigger_instance_id", TEXT, "Its group.instance.id; null for a dynamic member."),
    Column("trigger_client_id", TEXT, "Its client.id."),
    Column("trigger_host", TEXT, "Its address."),
    Column("trigger_was_leader", FLAG, "Whether it led the group."),
    Column("trigger_reason", TEXT, "JoinReason that it stated, or inferred from its text."),
    Column("trigger_reason_source", TEXT, "`tag`; `text` if inferred; or null."),
    Column("trigger_reason_text", TEXT, "Text of its JoinGroup or LeaveGroup."),
    Column("trigger_row", WHOLE, "Row of the decision table for members that rejoin."),
    Column("trigger_removed_count", WHOLE, "Members removed by this cause."),
    Column("trigger_session_timeout_ms", WHOLE, "Missed session timeout, or null."),
    Column(
        "trigger_rebalance_timeout_ms",
        WHOLE,
        "Rebalance timeout that was missed in the sync, or null.",
    ),
    Column("trigger_error", TEXT, "Error code, or null."),
    Column("trigger_detail", TEXT, "Further details, as text."),
    Column(
        "trigger_silent_ms",
        WHOLE,
        "For a static member that returned: silence of its old process.",
    ),
    Column("trigger_unfetched_ms", WHOLE, "For a member that left: how long it had not fetched."),
    Column(
        "trigger_still_connected",
        FLAG,
        "Whether a member that left, or missed its session timeout, was still connected; null if "
        "not checked.",
    ),
    Column("trigger_grown_topics", TEXTS, "Topics that got partitions before (at most 100)."),
    Column("trigger_grown_ms", WHOLE, "How long before the cause, or null."),
    Column(
        "trigger_same_process",
        FLAG,
        "For a new member: whether it is a process whose session had expired; null if there is "
        "none with its name, and from older brokers.",
    ),
    Column(
        "trigger_same_subscription",
        FLAG,
        "For a classic consumer that rejoined: whether its topics are the same; or null.",
    ),
    Column("trigger_subscribed", TEXTS, "Topics that it did not subscribe to before."),
    Column("trigger_unsubscribed", TEXTS, "Topics that it subscribed to before."),
    Column("trigger_away_ms", WHOLE, "If `trigger_same_process`: time since its last heartbeat."),
    Column(
        "trigger_certainty",
        TEXT,
        "How well the cause is known: `certain`, `likely` or `unclear`; null from older brokers.",
    ),
    Column("trigger_candidates", TEXTS, "If unclear: all possible causes, the likeliest first."),
)

_OBSERVED: Final = (
    Column("observed_by", TEXTS, "Sources of `kohort watch`; null if a broker wrote the event."),
    Column("observed_partition", WHOLE, "Partition of `__consumer_offsets` that shows it."),
    Column("observed_offset", WHOLE, "Offset of the record there that completed it."),
)

FURTHER_CAUSE: Final = struct(
    kind=TEXT,
    after_ms=WHOLE,
    member_id=TEXT,
    instance_id=TEXT,
    client_id=TEXT,
    reason=TEXT,
    reason_text=TEXT,
    session_timeout_ms=WHOLE,
    silent_ms=WHOLE,
    unfetched_ms=WHOLE,
    still_connected=FLAG,
    grown_topics=TEXTS,
    same_process=FLAG,
)

_EVENT: Final = Column("event", TEXT, "The event as JSON, unchanged.")

REBALANCES: Final = Table(
    "rebalances",
    "One row per rebalance, that is, per transition to PreparingRebalance or, in a consumer group, "
    "per target assignment.",
    EVENT_KEY,
    (
        *IDENTITY,
        Column("started_at", MOMENT, "Start."),
        Column(
            "ended_at",
            MOMENT,
            "When the group became Stable or Empty, or the next rebalance began. A consumer group "
            "is Stable when all members have their whole target.",
        ),
        Column("previous_generation", WHOLE, "Generation before."),
        Column("generation", WHOLE, "Generation after; null if the join phase never ended."),
        Column("previous_state", TEXT, "State before."),
        Column(
            "initial", FLAG, "Whether it is the first of an empty group, with the initial delay."
        ),
        Column("follows", WHOLE, "Sequence of the rebalance that it continues."),
        Column("superseded_by", WHOLE, "Sequence of the rebalance that superseded it."),
        Column("group_type", TEXT, "`classic`, `consumer`; null from older brokers."),
        Column("protocol_type", TEXT, "`consumer`, `connect` and so on."),
        Column("protocol", TEXT, "Chosen assignor."),
        *_TRIGGER,
        Column("further_causes", ListOf(FURTHER_CAUSE), "Further causes before the assignment."),
        Column("further_causes_dropped", WHOLE, "Further causes that are not listed."),
        Column("extension_count", WHOLE, "Extensions of the initial delay (at most 100)."),
        Column("stall_count", WHOLE, "Rebalance timeouts without any join."),
        Column("join_phase_ms", WHOLE, "Duration of the join phase."),
        Column("join_phase_end", TEXT, "`all_joined`, `timeout` or `initial_delay`."),
        Column(
            "assignment_ms", WHOLE, "From the end of the join phase until the leader's assignment."
        ),
        Column(
            "assigned_ms", WHOLE, "Consumer groups: from the start until the target was computed."
        ),
        Column("assigned_by", TEXT, "Consumer groups: `at_once`, `interval` or `heartbeat`."),
        Column("store_ms", WHOLE, "From the assignment until it was stored."),
        Column("duration_ms", WHOLE, "From start to end."),
        Column("waited_phase", TEXT, "Phase of the longest wait, or null."),
        Column("waited_ms", WHOLE, "Its duration, since all other members had joined."),
        Column("waited_member_ids", TEXTS, "Members waited for (at most 100)."),
        Column("waited_pending_ids", TEXTS, "Unused member ids waited for (at most 100)."),
        Column("outcome", TEXT, "`stable`, `empty`, `superseded`, `store_failed`, `unfinished`."),
        Column("error", TEXT, "With `store_failed`: error code."),
        Column("leader", TEXT, "Member id of the new leader."),
        Column("leader_changed", FLAG, "Whether another member led before."),
        Column("leader_change", TEXT, "Why: `first`, `left`, `replaced` or `absent`."),
        Column("members_before", WHOLE, "Members before."),
        Column("members_after", WHOLE, "Members after."),
        Column("members_dropped", WHOLE, "Members that the event does not list."),
        Column("partitions_known", FLAG, "Whether the next four columns are valid."),
        Column("partitions_kept", WHOLE, "Partitions that stayed with their members."),
        Column("partitions_moved", WHOLE, "Gained partitions that another member owned before."),
        Column("partitions_gained", WHOLE, "Gained partitions."),
        Column("partitions_given_up", WHOLE, "Revoked partitions."),
        Column(
            "stopped_member_count",
            WHOLE,
            "Previous members that were stopped for 1 ms or longer; in a consumer group, members "
            "that gained partitions which had no owner for that long.",
        ),
        Column("stopped_longest_ms", WHOLE, "Longest stop."),
        Column("stopped_total_ms", WHOLE, "Sum of the stops."),
        Column("unread_partition_count", WHOLE, "Partitions of departed members."),
        Column("unread_longest_ms", WHOLE, "Longest time without a reader."),
        Column(
            "restart_ms",
            WHOLE,
            "Time since the broker's restart, for the first rebalance within a minute of it.",
        ),
        Column("pending_transactions", WHOLE, "Open transactions with its offsets at the start."),
        Column(
            "fenced_commits", WHOLE, "Transactional commits rejected as those of former members."
        ),
        Column("stopped_open_count", WHOLE, "Members whose stop had not ended."),
        Column(
            "needless",
            FLAG,
            "Whether the group had members, became Stable, and no partition was gained or "
            "revoked. False if a member forced it; null if unknown.",
        ),
        *_OBSERVED,
        Column("started_earliest", MOMENT, "If the start is a guess: its lower bound, or null."),
        Column("started_latest", MOMENT, "Its upper bound, or null."),
        _EVENT,
        *SOURCE,
    ),
)

AVOIDED: Final = Table(
    "avoided",
    "One row per join that could have started a rebalance and did not.",
    EVENT_KEY,
    (
        *IDENTITY,
        Column("at", MOMENT, "Time."),
        Column("generation", WHOLE, "The unchanged generation."),
        *_TRIGGER,
        *_OBSERVED,
        _EVENT,
        *SOURCE,
    ),
)

MEMBERS: Final = Table(
    "members",
    "One row per member and rebalance. Times count from the start of the rebalance.",
    (*EVENT_KEY, "ordinal"),
    (
        *IDENTITY,
        Column("ordinal", SMALL, "Position in the event, from 0."),
        Column("member_id", TEXT, "Member id."),
        Column("instance_id", TEXT, "group.instance.id; null for a dynamic member."),
        Column("client_id", TEXT, "client.id."),
        Column("host", TEXT, "Address."),
        Column(
            "client_software_name",
            TEXT,
            "Name that its client states (KIP-511), `unknown` if it states none; null if it has "
            "not joined since the broker started.",
        ),
        Column("client_software_version", TEXT, "Version that its client states."),
        Column("owner", TEXT, "instance_id, or member_id without one."),
        Column("type", TEXT, "Protocol that it uses: `classic` or `consumer`."),
        Column("role", TEXT, "`leader` or `follower` of the new generation, or null."),
        Column("started_at", MOMENT, "Start of the rebalance."),
        Column(
            "told_ms",
            WHOLE,
            "When it first got REBALANCE_IN_PROGRESS; in a consumer group, fewer partitions or the "
            "new epoch.",
        ),
        Column("join_received_ms", WHOLE, "When its JoinGroup arrived."),
        Column("join_answered_ms", WHOLE, "When its JoinGroup was answered."),
        Column("sync_received_ms", WHOLE, "When its SyncGroup arrived."),
        Column("sync_answered_ms", WHOLE, "When it got its assignment."),
        Column("epoch_before", WHOLE, "Consumer groups: its epoch before; null for a new member."),
        Column("epoch", WHOLE, "Consumer groups: its epoch at the end."),
        Column("revoked_ms", WHOLE, "Consumer groups: when it had given up revoked partitions."),
        Column("reached_ms", WHOLE, "Consumer groups: when it got the new epoch."),
        Column("completed_ms", WHOLE, "Consumer groups: when it had its whole target."),
        Column(
            "join_delay_ms",
            WHOLE,
            "From told_ms to its join: the time to finish a poll, revoke partitions and "
            "commit. Null if either is null.",
        ),
        Column("fate", TEXT, "`kept`, `new`, or why it is no longer a member."),
        Column("fate_ms", WHOLE, "When it left; 0 if that started the rebalance."),
        Column("replaced_by", TEXT, "The new id of its process."),
        Column(
            "certainty",
            TEXT,
            "How well its fate is known, if `kohort watch` concluded it: `certain`, `likely` or "
            "`unclear`; else null.",
        ),
        Column("candidates", TEXTS, "If unclear: all possible fates, the likeliest first."),
        Column("reason", TEXT, "JoinReason that it stated, or inferred from its text."),
        Column("reason_source", TEXT, "`tag`; `text` if inferred; or null."),
        Column("reason_text", TEXT, "Text of its JoinGroup, or of its LeaveGroup if it left."),
        Column("mode", TEXT, "`eager`, `cooperative`, `consumer`, or null if it did not join."),
        Column(
            "stopped_ms",
            WHOLE,
            "How long it was stopped, as observed by the broker; in a consumer group, how "
            "long a partition that it gained had no owner.",
        ),
        Column("stopped_open", FLAG, "Whether the stop had not ended."),
        Column(
            "session_timeout_ms", WHOLE, "Session timeout in its join; null if it did not join."
        ),
        Column(
            "rebalance_timeout_ms",
            WHOLE,
            "Rebalance timeout in its join: its max.poll.interval.ms.",
        ),
        Column("partitions_known", FLAG, "Whether the next columns are valid."),
        Column("partitions_kept", WHOLE, "Kept partitions."),
        Column("partitions_given_up", WHOLE, "Revoked partitions."),
        Column("partitions_gained", WHOLE, "Gained partitions."),
        Column("given_up", TEXTS, "Revoked partitions as topic-partition (at most 50)."),
        Column("gained", TEXTS, "Gained partitions as topic-partition (at most 50)."),
    ),
)

RUNNING: Final = Table(
    "running",
    "Intermediate events of long rebalances. The complete event has the same "
    "sequence, so no finding counts these rows; without one, the sequence is in "
    "`sequence_gaps`.",
    EVENT_KEY,
    (
        *IDENTITY,
        Column("started_at", MOMENT, "Start."),
        Column("trigger_kind", TEXT, "Observed cause (`kind`)."),
        _EVENT,
        *SOURCE,
    ),
)

QUARANTINE: Final = Table(
    "quarantine",
    "Records that could not be parsed as events, unchanged.",
    ("cluster_id", "topic", "partition", "offset", "value", "reason"),
    (
        CLUSTER,
        *SOURCE,
        Column("timestamp", MOMENT, "The record's timestamp; null for a file."),
        Column(
            "reason",
            TEXT,
            "`no_value`, `not_json`, `not_of_the_schema` (a value of the wrong type), "
            "`schema_version`, `unknown_kind`, `missing_field`, or `sequence_taken` (another "
            "event has this sequence).",
        ),
        Column("detail", TEXT, "Further details, as text."),
        Column("key", TEXT, "The record's key, with U+FFFD for bytes that are not UTF-8."),
        Column("value", BYTES, "The record's value, unchanged, or null."),
    ),
)

HISTORY: Final = (REBALANCES, AVOIDED, MEMBERS, RUNNING, QUARANTINE)
"""Rows of these tables are written once."""
