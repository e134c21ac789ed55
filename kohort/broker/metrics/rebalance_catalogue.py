"""The metrics of rebalances and members; part of the catalogue."""

from typing import Final

from kohort.broker.metrics.metric_info import OTHER, Section, counter, gauge, histogram, unknown

_COORDINATOR: Final = "kafka_server_group_coordinator_metrics"
_RECENTLY: Final = "per second, over the last 30 to 60 seconds, measured between scrapes."

GROUP_COUNT = gauge(
    f"{_COORDINATOR}_group_count", "Groups, by the protocol they speak.", "protocol"
)
PARTITION_LOAD_MAX = gauge(
    f"{_COORDINATOR}_partition_load_time_max",
    "Longest time that the start took to read one partition of __consumer_offsets, "
    "in milliseconds.",
)
PARTITION_LOAD_AVG = gauge(
    f"{_COORDINATOR}_partition_load_time_avg",
    "The same, as the mean over all partitions that have records.",
)
COMPLETED_REBALANCES = unknown(
    f"{_COORDINATOR}_group_completed_rebalance_count",
    "Rebalances that ended with an assignment, stored and sent to members, since the start.",
)
OFFSET_COMMITS = unknown(
    f"{_COORDINATOR}_offset_commit_count", "Committed offsets since the start."
)
OFFSET_EXPIRATIONS = unknown(
    f"{_COORDINATOR}_offset_expiration_count",
    "Committed offsets that expired since the start.",
)
OFFSET_DELETIONS = unknown(
    f"{_COORDINATOR}_offset_deletion_count",
    "Committed offsets deleted on request or with their topic, since the start.",
)
COMPLETED_REBALANCE_RATE = gauge(
    f"{_COORDINATOR}_group_completed_rebalance_rate", f"Completed rebalances {_RECENTLY}"
)
OFFSET_COMMIT_RATE = gauge(f"{_COORDINATOR}_offset_commit_rate", f"Offsets committed {_RECENTLY}")
OFFSET_EXPIRATION_RATE = gauge(
    f"{_COORDINATOR}_offset_expiration_rate", f"Offsets expired {_RECENTLY}"
)
OFFSET_DELETION_RATE = gauge(f"{_COORDINATOR}_offset_deletion_rate", f"Offsets deleted {_RECENTLY}")

STARTED = counter(
    "kohort_rebalances_started_total", "Rebalances that started, by what the broker saw.", "cause"
)
AVOIDED = counter(
    "kohort_rebalances_avoided_total",
    "Joins that could have started a rebalance and did not, by the reason that the member stated.",
    "cause",
    "reason",
)
PHASES = histogram(
    "kohort_rebalance_phase_seconds",
    "How long rebalances waited for members to join (phase join) and for the "
    "leader's assignment (phase sync), and how long groups had no assignment (phase "
    "whole: until Stable or Empty, including superseded rebalances).",
    "phase",
)
MEMBERS_REMOVED = counter(
    "kohort_group_members_removed_total", "Members that left or were removed, by cause.", "cause"
)
STOPPED = counter(
    "kohort_rebalance_stopped_seconds_total",
    "How long members were stopped by rebalances, summed over members; added when "
    "the record of the rebalance is complete.",
)
PARTITIONS_MOVED = counter(
    "kohort_rebalance_partitions_moved_total",
    "Partitions that moved from one member to another, in groups with the protocol type consumer.",
)
RUNNING = gauge("kohort_rebalances_running", "Groups with a rebalance in progress.")
PARKED_JOINS = gauge("kohort_group_parked_joins", "JoinGroup requests that wait for other members.")
PARKED_SYNCS = gauge("kohort_group_parked_syncs", "SyncGroup requests that wait for the leader.")
PENDING_IDS = gauge(
    "kohort_group_pending_ids", "Member ids that were assigned and are not used yet."
)

GROUP_REBALANCES = counter(
    "kafka_consumergroup_rebalances_total",
    "Rebalances of the group that started, by what the broker saw and the group's protocol.",
    "consumergroup",
    "cause",
    "protocol",
)
GROUP_AVOIDED = counter(
    "kohort_consumergroup_rebalances_avoided_total",
    "Joins that could have made the group rebalance and did not, by the stated reason.",
    "consumergroup",
    "reason",
)
GROUP_REMOVED = counter(
    "kohort_consumergroup_members_removed_total",
    "Members that left the group or were removed, by cause.",
    "consumergroup",
    "cause",
)
GROUP_STOPPED = counter(
    "kohort_consumergroup_stopped_seconds_total",
    "How long members of the group were stopped by rebalances, summed over members.",
    "consumergroup",
)
GROUP_MOVED = counter(
    "kohort_consumergroup_partitions_moved_total",
    "Partitions that moved from one member of the group to another.",
    "consumergroup",
)
GROUP_WAITING_SINCE = gauge(
    "kohort_consumergroup_rebalance_waiting_since_seconds",
    "When the group's unfinished rebalance started, in seconds since 1970; absent if there is none."
    f" Under {OTHER}: the earliest of the rest.",
    "consumergroup",
)

HISTORY_RECORDS = gauge("kohort_rebalance_history_records", "Records in memory.")
HISTORY_BYTES = gauge("kohort_rebalance_history_memory_bytes", "Memory of these records.")
HISTORY_WAITING = gauge(
    "kohort_rebalance_history_waiting", "Rebalances that have ended and wait for their record."
)
HISTORY_LOST = counter(
    "kohort_rebalance_history_lost_total",
    "Records that could not be written to the history's topic.",
)
HISTORY_DROPPED = counter(
    "kohort_rebalance_history_dropped_total",
    "Rebalances without a record: too many at once, or a bug.",
)

OVER_ALL: Final = (
    GROUP_COUNT,
    PARTITION_LOAD_MAX,
    PARTITION_LOAD_AVG,
    COMPLETED_REBALANCES,
    COMPLETED_REBALANCE_RATE,
    OFFSET_COMMITS,
    OFFSET_COMMIT_RATE,
    OFFSET_EXPIRATIONS,
    OFFSET_EXPIRATION_RATE,
    OFFSET_DELETIONS,
    OFFSET_DELETION_RATE,
    PARKED_JOINS,
    PARKED_SYNCS,
    PENDING_IDS,
)

SECTIONS: Final = (
    Section(
        "Rebalances",
        "Over all groups, since the start.",
        (
            STARTED,
            AVOIDED,
            PHASES,
            STOPPED,
            PARTITIONS_MOVED,
            MEMBERS_REMOVED,
            RUNNING,
        ),
    ),
    Section(
        "Rebalances by group",
        "The first `kohort.metrics.groups.max` groups that rebalance have series of their own; the "
        f"others are counted under `{OTHER}`. Their counts stay there when one of them gets series "
        "of its own, so that no counter decreases. A deleted group is shown for 15 more minutes; "
        "if it comes back while there is room, its counters continue.",
        (
            GROUP_REBALANCES,
            GROUP_AVOIDED,
            GROUP_STOPPED,
            GROUP_MOVED,
            GROUP_REMOVED,
            GROUP_WAITING_SINCE,
        ),
    ),
    Section(
        "Rebalance history",
        "See rebalance-history.md.",
        (HISTORY_RECORDS, HISTORY_BYTES, HISTORY_WAITING, HISTORY_LOST, HISTORY_DROPPED),
    ),
)
