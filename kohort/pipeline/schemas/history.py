"""Tables with a row for each thing that the history has told: nothing is worked out across events,
so each row is written once and never changes.
"""

from typing import Final

from pyspark.sql.types import ArrayType

from kohort.pipeline.schemas.columns import (
    BYTES,
    FLAG,
    MOMENT,
    SMALL,
    TEXT,
    TEXTS,
    WHOLE,
    Column,
    Table,
    struct,
)

CLUSTER: Final = Column(
    "cluster_id", TEXT, "The Kafka cluster id of the broker, or what `--cluster-id` said of a file."
)
GROUP: Final = Column("group", TEXT, "Group id.")
SEQUENCE: Final = Column(
    "sequence",
    WHOLE,
    "Number of the event in its group. Rebalances and avoided ones are counted together.",
)
IDENTITY: Final = (CLUSTER, GROUP, SEQUENCE)
EVENT_KEY: Final = tuple(column.name for column in IDENTITY)

SOURCE: Final = (
    Column("topic", TEXT, "Where the event was read: the topic, or the name of the file."),
    Column("partition", SMALL, "Partition of the topic; 0 of a file."),
    Column("offset", WHOLE, "Offset in the partition; of a file, the number of its line from 0."),
)

_TRIGGER: Final = (
    Column("trigger_kind", TEXT, "What the broker saw: the `kind` of the cause."),
    Column("trigger_at", MOMENT, "When."),
    Column("trigger_member_id", TEXT, "Whose doing it was; null where it was no member's alone."),
    Column("trigger_instance_id", TEXT, "Its group.instance.id; null for a dynamic member."),
    Column("trigger_client_id", TEXT, "Its client.id."),
    Column("trigger_host", TEXT, "Its address."),
    Column("trigger_was_leader", FLAG, "Whether it led the group."),
    Column("trigger_reason", TEXT, "The JoinReason that it stated, or that its text suggests."),
    Column("trigger_reason_source", TEXT, "`tag`, `text` for a guess, or null."),
    Column("trigger_reason_text", TEXT, "The text of its JoinGroup or LeaveGroup."),
    Column("trigger_row", WHOLE, "Row of the decision table for members that join again."),
    Column("trigger_removed_count", WHOLE, "Members whose removal is this one cause."),
    Column("trigger_session_timeout_ms", WHOLE, "That was missed, in ms; else null."),
    Column("trigger_rebalance_timeout_ms", WHOLE, "That was missed in the sync, in ms; else null."),
    Column("trigger_error", TEXT, "Name of an error code; else null."),
    Column("trigger_detail", TEXT, "More, in words."),
    Column(
        "trigger_silent_ms",
        WHOLE,
        "Of a static member that came back: how long its old process was silent, in ms; else null.",
    ),
    Column("trigger_unfetched_ms", WHOLE, "How long a member that left did not fetch, in ms."),
    Column("trigger_grown_topics", TEXTS, "Topics given more partitions before (100 at most)."),
    Column("trigger_grown_ms", WHOLE, "How long before, in ms; null where none was."),
)

FURTHER_CAUSE: Final = struct(
    kind=TEXT, after_ms=WHOLE, member_id=TEXT, instance_id=TEXT, client_id=TEXT, reason=TEXT
)

_EVENT: Final = Column("event", TEXT, "The whole event as JSON, as it was read.")

REBALANCES: Final = Table(
    "rebalances",
    "One row for each rebalance: each move of a group to PreparingRebalance, with what came of it.",
    EVENT_KEY,
    (
        *IDENTITY,
        Column("started_at", MOMENT, "When it began."),
        Column("ended_at", MOMENT, "When the group was Stable or Empty, or the next one began."),
        Column("previous_generation", WHOLE, "Generation before."),
        Column("generation", WHOLE, "Generation after; null if joins were never complete."),
        Column("previous_state", TEXT, "State of the group before."),
        Column("initial", FLAG, "The first of an empty group, which waits for its delay."),
        Column("follows", WHOLE, "Sequence of the rebalance of which this is the continuation."),
        Column("superseded_by", WHOLE, "Sequence of the rebalance that took over."),
        Column("protocol_type", TEXT, "`consumer`, `connect` and so on."),
        Column("protocol", TEXT, "The assignor that was chosen."),
        *_TRIGGER,
        Column(
            "further_causes", ArrayType(FURTHER_CAUSE), "What else happened while joins came in."
        ),
        Column("further_causes_dropped", WHOLE, "How many more there were."),
        Column("extension_count", WHOLE, "How often the initial delay was extended (100 at most)."),
        Column("stall_count", WHOLE, "How often time was up and no member had joined."),
        Column("join_phase_ms", WHOLE, "Length of the join phase in ms."),
        Column("join_phase_end", TEXT, "`all_joined`, `timeout` or `initial_delay`."),
        Column("assignment_ms", WHOLE, "From there until the leader's assignment came, in ms."),
        Column("store_ms", WHOLE, "From there until it was stored, in ms."),
        Column("duration_ms", WHOLE, "From start to end, in ms."),
        Column("waited_phase", TEXT, "What the longest wait was for; null if for nothing."),
        Column("waited_ms", WHOLE, "How long that was, in ms, from when all others were there."),
        Column("waited_member_ids", TEXTS, "The members waited for (100 at most)."),
        Column("waited_pending_ids", TEXTS, "Ids that were handed out and never used (100)."),
        Column("outcome", TEXT, "`stable`, `empty`, `superseded`, `store_failed`, `unfinished`."),
        Column("error", TEXT, "With `store_failed`: name of the error code."),
        Column("leader", TEXT, "Member id of the leader of the new generation."),
        Column("leader_changed", FLAG, "Whether that is another one than before."),
        Column("leader_change", TEXT, "Why: `first`, `left`, `replaced` or `absent`."),
        Column("members_before", WHOLE, "Members before."),
        Column("members_after", WHOLE, "Members after."),
        Column("members_dropped", WHOLE, "Members that the event does not list."),
        Column("partitions_known", FLAG, "Whether the next four columns mean anything."),
        Column("partitions_kept", WHOLE, "Partitions that stayed with their member."),
        Column("partitions_moved", WHOLE, "Gained ones that another member had before."),
        Column("partitions_gained", WHOLE, "Partitions that members gained."),
        Column("partitions_given_up", WHOLE, "Partitions that members gave up."),
        Column("stopped_member_count", WHOLE, "Members of before that stood still for 1 ms up."),
        Column("stopped_longest_ms", WHOLE, "The longest of these stops, in ms."),
        Column("stopped_total_ms", WHOLE, "Their sum, in ms."),
        Column("pending_transactions", WHOLE, "Open ones with positions of it when it began."),
        Column("fenced_commits", WHOLE, "Commits in transactions refused to former members."),
        Column("stopped_open_count", WHOLE, "Members whose stop had not ended."),
        Column(
            "needless",
            FLAG,
            "Whether a group that had members ended up Stable with every partition where it was: "
            "nothing gained, nothing given up. What a member enforced is not needless, as somebody "
            "wanted it. Null where that is not known.",
        ),
        _EVENT,
        *SOURCE,
    ),
)

AVOIDED: Final = Table(
    "avoided",
    "One row for each join that could have started a rebalance and did not.",
    EVENT_KEY,
    (
        *IDENTITY,
        Column("at", MOMENT, "When."),
        Column("generation", WHOLE, "The generation, which stayed."),
        *_TRIGGER,
        _EVENT,
        *SOURCE,
    ),
)

MEMBERS: Final = Table(
    "members",
    "One row for each member and rebalance. Moments in ms count from the start of the rebalance.",
    (*EVENT_KEY, "ordinal"),
    (
        *IDENTITY,
        Column("ordinal", SMALL, "Place among the members of the event, from 0."),
        Column("member_id", TEXT, "Member id."),
        Column("instance_id", TEXT, "group.instance.id; null for a dynamic member."),
        Column("client_id", TEXT, "client.id."),
        Column("host", TEXT, "Address."),
        Column("owner", TEXT, "instance_id, or member_id without one: what survives a restart."),
        Column("role", TEXT, "`leader` or `follower` of the new generation; null for others."),
        Column("started_at", MOMENT, "When the rebalance began."),
        Column("told_ms", WHOLE, "When the member was told of the rebalance."),
        Column("join_received_ms", WHOLE, "When its JoinGroup came."),
        Column("join_answered_ms", WHOLE, "When that was answered."),
        Column("sync_received_ms", WHOLE, "When its SyncGroup came."),
        Column("sync_answered_ms", WHOLE, "When it got its assignment."),
        Column(
            "join_delay_ms",
            WHOLE,
            "From being told to its join, in ms: giving partitions up, committing, and finishing "
            "the poll that it was in. Null if it was not told, or did not join.",
        ),
        Column("fate", TEXT, "`kept`, `new`, or how it ceased to be a member."),
        Column("fate_ms", WHOLE, "When; 0 if that is why the rebalance began."),
        Column("replaced_by", TEXT, "The new id of its process."),
        Column("reason", TEXT, "The JoinReason that it stated, or that its text suggests."),
        Column("reason_source", TEXT, "`tag`, `text` for a guess, or null."),
        Column("reason_text", TEXT, "The text of its JoinGroup, or LeaveGroup if it left."),
        Column("mode", TEXT, "`eager`, `cooperative`, or null for one that did not join."),
        Column("stopped_ms", WHOLE, "How long it stood still, in ms, as seen by the broker."),
        Column("stopped_open", FLAG, "Whether that had not ended when the event was made."),
        Column("session_timeout_ms", WHOLE, "That its join asked for; null if it did not join."),
        Column("rebalance_timeout_ms", WHOLE, "The same: its max.poll.interval.ms."),
        Column("partitions_known", FLAG, "Whether the next columns mean anything."),
        Column("partitions_kept", WHOLE, "Partitions that it kept."),
        Column("partitions_given_up", WHOLE, "Partitions that it gave up."),
        Column("partitions_gained", WHOLE, "Partitions that it gained."),
        Column("given_up", TEXTS, "Those given up, as topic-partition (50 at most)."),
        Column("gained", TEXTS, "Those gained, as topic-partition (50 at most)."),
    ),
)

RUNNING: Final = Table(
    "running",
    "Rebalances that were told of before their end, since they took long. The complete event "
    "follows under the same sequence, so nothing else counts these rows; where it never came, "
    "`sequence_gaps` has the sequence and this is all that is known.",
    EVENT_KEY,
    (
        *IDENTITY,
        Column("started_at", MOMENT, "When it began."),
        Column("trigger_kind", TEXT, "What the broker saw: the `kind` of the cause."),
        _EVENT,
        *SOURCE,
    ),
)

QUARANTINE: Final = Table(
    "quarantine",
    "What could not be read as an event of the history, as it was found.",
    ("cluster_id", "topic", "partition", "offset", "value", "reason"),
    (
        CLUSTER,
        *SOURCE,
        Column("timestamp", MOMENT, "The record's timestamp; null of a file."),
        Column(
            "reason",
            TEXT,
            "`no_value`, `not_json`, `not_of_the_schema` (a value of the wrong type), "
            "`schema_version`, `unknown_kind`, `missing_field`, or `sequence_taken` (another event "
            "of this group has this sequence).",
        ),
        Column("detail", TEXT, "More, in words."),
        Column("key", TEXT, "The record's key, with U+FFFD for bytes that are not UTF-8."),
        Column("value", BYTES, "The record's value, byte for byte; null if it has none."),
    ),
)
