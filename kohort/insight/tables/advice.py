"""The table of the what-if advisor."""

from typing import Final

from kohort.insight.tables.columns import (
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
from kohort.insight.tables.history import CLUSTER, GROUP

ADVICE: Final = Table(
    "advice",
    "One row per group and setting: the result of replaying the group's history under "
    "it. A group's rows are replaced together.",
    (CLUSTER.name, GROUP.name, "ordinal"),
    (
        CLUSTER,
        GROUP,
        Column("ordinal", SMALL, "Position in the grid; 0 is the recorded setting."),
        Column("static", FLAG, "Static membership; null: as recorded for each process."),
        Column("session_timeout_ms", WHOLE, "session.timeout.ms."),
        Column("heartbeat_interval_ms", WHOLE, "heartbeat.interval.ms."),
        Column("rebalance_timeout_ms", WHOLE, "max.poll.interval.ms."),
        Column("initial_rebalance_delay_ms", WHOLE, "group.initial.rebalance.delay.ms."),
        Column("cooperative", FLAG, "Cooperative instead of eager assignor."),
        Column("states_reasons", FLAG, "Clients that state JoinReason."),
        Column("consumer", FLAG, "Consumer protocol (KIP-848): group.protocol=consumer."),
        Column("assignment_interval_ms", WHOLE, "group.consumer.assignment.interval.ms."),
        Column("is_recorded", FLAG, "Whether this is the recorded setting."),
        Column("is_on_front", FLAG, "Whether it is on the Pareto front, which the summary shows."),
        Column("is_best", FLAG, "Whether it is recommended (the star)."),
        Column("rebalances", WHOLE, "Rebalances."),
        Column("stopped_ms", WHOLE, "Stopped time of all members."),
        Column("stopped_longest_ms", WHOLE, "Longest stop of a member."),
        Column(
            "stopped_by_member",
            ListOf(struct(member=TEXT, stopped_ms=WHOLE)),
            "Stopped time per process, by instance id or client id.",
        ),
        Column(
            "convergence_ms",
            WHOLE,
            "Time from the first cause of each rebalance until the group was stable, added up, in "
            "ms.",
        ),
        Column("partition_count", WHOLE, "Partitions of the group."),
        Column("unread_ms", WHOLE, "Time without a reader of all partitions."),
        Column("unread_longest_ms", WHOLE, "Longest such time of a partition."),
        Column("deaths", WHOLE, "Processes that crashed or left without LeaveGroup."),
        Column("unnoticed_ms", WHOLE, "Time until the group continued without them, in total."),
        Column("unnoticed_longest_ms", WHOLE, "Longest of these times."),
        Column("notice_ms", WHOLE, "How long a crash goes unnoticed with this session timeout."),
        Column("text", TEXT, "Effect and cost, as text."),
        Column("history_rebalances", WHOLE, "Rebalances in the history."),
        Column("history_stopped_ms", WHOLE, "Stopped time in the history, or null."),
        Column("first_at", MOMENT, "Time of the first replayed event."),
        Column("last_at", MOMENT, "Time of the last event."),
        Column("last_sequence", WHOLE, "Sequence of that event; equal for the same events."),
        Column("unknown", TEXTS, "Facts that the history lacks."),
        Column(
            "stopped_spread_ms",
            WHOLE,
            "How far one run may deviate from stopped_ms by chance: twice the standard "
            "deviation of the replays.",
        ),
        Column("unranked", TEXTS, "Settings that were not tried or not ranked, and why."),
        Column(
            "quicker_member",
            TEXT,
            "The process that was replayed as quick as the others, under the recorded or "
            "recommended settings; null in rows of settings.",
        ),
        Column("libraries", TEXTS, "Client libraries of the members, as far as they are known."),
    ),
)
