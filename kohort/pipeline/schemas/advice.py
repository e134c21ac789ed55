"""The table of the what-if advisor."""

from typing import Final

from pyspark.sql.types import ArrayType

from kohort.pipeline.schemas.columns import (
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
from kohort.pipeline.schemas.history import CLUSTER, GROUP

ADVICE: Final = Table(
    "advice",
    "One row for each group and setting that was tried: what the replay of the group's history "
    "under it came to. Rows of a group are replaced as a whole when it is advised again.",
    (CLUSTER.name, GROUP.name, "ordinal"),
    (
        CLUSTER,
        GROUP,
        Column("ordinal", SMALL, "Place in the grid, from 0, which is what was recorded."),
        Column("static", FLAG, "Static membership; null: each process as it was recorded."),
        Column("session_timeout_ms", WHOLE, "session.timeout.ms."),
        Column("heartbeat_interval_ms", WHOLE, "heartbeat.interval.ms."),
        Column("rebalance_timeout_ms", WHOLE, "max.poll.interval.ms."),
        Column("initial_rebalance_delay_ms", WHOLE, "group.initial.rebalance.delay.ms."),
        Column("cooperative", FLAG, "A cooperative assignor, instead of an eager one."),
        Column("states_reasons", FLAG, "Clients that state JoinReason, instead of stock ones."),
        Column("is_recorded", FLAG, "Whether that is what the history was recorded under."),
        Column("is_on_front", FLAG, "Whether it is worth a thought: the lines of the summary."),
        Column("is_best", FLAG, "Whether it gains most, all in all."),
        Column("rebalances", WHOLE, "Rebalances."),
        Column("stopped_ms", WHOLE, "Time that members stood still, all together, in ms."),
        Column("stopped_longest_ms", WHOLE, "The longest stop of a member, in ms."),
        Column(
            "stopped_by_member",
            ArrayType(struct(member=TEXT, stopped_ms=WHOLE)),
            "The same for each process, by its instance id or client id.",
        ),
        Column("partition_count", WHOLE, "Partitions that the members share."),
        Column("unread_ms", WHOLE, "Time that partitions had no reader, all together, in ms."),
        Column("unread_longest_ms", WHOLE, "The longest such time of a partition, in ms."),
        Column("deaths", WHOLE, "Processes that went without a word."),
        Column("unnoticed_ms", WHOLE, "Until the group went on without them, all together, ms."),
        Column("unnoticed_longest_ms", WHOLE, "The longest of these times, in ms."),
        Column("notice_ms", WHOLE, "How long a crash goes unnoticed with this session, in ms."),
        Column("text", TEXT, "What it changes and what it costs, in words."),
        Column("history_rebalances", WHOLE, "Rebalances that the history has."),
        Column("history_stopped_ms", WHOLE, "Stopped time that it has, in ms; null if none."),
        Column("first_at", MOMENT, "Of the first event that was replayed."),
        Column("last_at", MOMENT, "Of the last one."),
        Column("last_sequence", WHOLE, "Its number: with it, advice on the same events is known."),
        Column("unknown", TEXTS, "What the history does not say."),
        Column(
            "stopped_spread_ms",
            WHOLE,
            "How far from stopped_ms one life may be by chance alone, in ms: twice the standard "
            "deviation of the replays.",
        ),
        Column("unranked", TEXTS, "Settings that were not weighed, and why."),
        Column(
            "quicker_member",
            TEXT,
            "The process that was taken to be as quick as the others, under the settings of the "
            "time or those that gain most; null in rows of settings.",
        ),
    ),
)
