"""The metrics of rebalances and members; part of the catalogue."""

from typing import Final

from kohort.broker.metrics.metric_info import OTHER, Section, counter, gauge, histogram, unknown

_COORDINATOR: Final = "kafka_server_group_coordinator_metrics"
_RECENTLY: Final = "per second, over the last 30 to 60 seconds, measured between scrapes."

GROUP_COUNT = gauge(
    f"{_COORDINATOR}_group_count", "Groups, by the protocol they speak.", "protocol"
)
CONSUMER_GROUP_COUNT = gauge(
    f"{_COORDINATOR}_consumer_group_count", "Consumer groups (KIP-848), by state.", "state"
)
PARTITION_LOAD_MAX = gauge(
    f"{_COORDINATOR}_partition_load_time_max",
    "Longest time to load one partition of __consumer_offsets at the start, in milliseconds.",
)
PARTITION_LOAD_AVG = gauge(
    f"{_COORDINATOR}_partition_load_time_avg",
    "Mean time to load a partition of __consumer_offsets at the start, over those with records.",
)
COMPLETED_REBALANCES = unknown(
    f"{_COORDINATOR}_group_completed_rebalance_count",
    "Rebalances of classic groups that ended with an assignment, stored and sent to members, since "
    "the start.",
)
CONSUMER_GROUP_REBALANCES = unknown(
    f"{_COORDINATOR}_consumer_group_rebalance_count",
    "Bumps of the epochs of consumer groups, which Kafka calls rebalances, since the start.",
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
CONSUMER_GROUP_REBALANCE_RATE = gauge(
    f"{_COORDINATOR}_consumer_group_rebalance_rate", f"Epoch bumps of consumer groups {_RECENTLY}"
)
OFFSET_COMMIT_RATE = gauge(f"{_COORDINATOR}_offset_commit_rate", f"Offsets committed {_RECENTLY}")
OFFSET_EXPIRATION_RATE = gauge(
    f"{_COORDINATOR}_offset_expiration_rate", f"Offsets expired {_RECENTLY}"
)
OFFSET_DELETION_RATE = gauge(f"{_COORDINATOR}_offset_deletion_rate", f"Offsets deleted {_RECENTLY}")

STARTED = counter(
    "kohort_rebalances_started_total",
    "Rebalances that started, by the cause that the broker observed.",
    "cause",
)
AVOIDED = counter(
    "kohort_rebalances_avoided_total",
    "Joins that could have started a rebalance but did not, by cause and the member's stated "
    "reason.",
    "cause",
    "reason",
)
PHASES = histogram(
    "kohort_rebalance_phase_seconds",
    "Time that rebalances waited for members to join (phase join) and for the "
    "leader's assignment (phase sync), and time that groups had no assignment (phase "
    "whole: until Stable or Empty, including superseded rebalances). In consumer groups: time from "
    "the first change of the epoch to the target (assign), from there until all members had their "
    "whole target (reconcile), and for each of up to 1,000 members from the target to its next "
    "heartbeat (notice) and from there until it had given up partitions (revoke); these are "
    "counted when the record of the rebalance is complete.",
    "phase",
)
MEMBERS_REMOVED = counter(
    "kohort_group_members_removed_total", "Members that left or were removed, by cause.", "cause"
)
STOPPED = counter(
    "kohort_rebalance_stopped_seconds_total",
    "Time that members were stopped by rebalances, summed over members; in consumer groups, the "
    "time for which partitions that they gained had no owner. Counted when the record of the "
    "rebalance is complete.",
)
PARTITIONS_MOVED = counter(
    "kohort_rebalance_partitions_moved_total",
    "Partitions that moved from one member to another, in groups with the protocol type consumer.",
)
RUNNING = gauge("kohort_rebalances_running", "Groups with a rebalance in progress.")
PARKED_JOINS = gauge("kohort_group_parked_joins", "JoinGroup requests that wait for other members.")
PARKED_SYNCS = gauge("kohort_group_parked_syncs", "SyncGroup requests that wait for the leader.")
PENDING_IDS = gauge(
    "kohort_group_pending_ids", "Member ids that were assigned, but not used to join yet."
)

GROUP_REBALANCES = counter(
    "kafka_consumergroup_rebalances_total",
    "Rebalances of the group that started, by the observed cause and the group's protocol.",
    "consumergroup",
    "cause",
    "protocol",
)
GROUP_AVOIDED = counter(
    "kohort_consumergroup_rebalances_avoided_total",
    "Joins that could have started a rebalance of the group but did not, by the stated reason.",
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
    "Time that members of the group were stopped by rebalances, summed over members.",
    "consumergroup",
)
GROUP_MOVED = counter(
    "kohort_consumergroup_partitions_moved_total",
    "Partitions that moved from one member of the group to another.",
    "consumergroup",
)
GROUP_EPOCH_BUMPS = counter(
    "kohort_consumergroup_epoch_bumps_total",
    "Bumps of the epoch of a consumer group, by cause.",
    "consumergroup",
    "cause",
)
GROUP_WAITING_SINCE = gauge(
    "kohort_consumergroup_rebalance_waiting_since_seconds",
    "Start time of the group's unfinished rebalance, in seconds since 1970; absent if there is "
    f"none. Under {OTHER}: the earliest of the other groups.",
    "consumergroup",
)

HISTORY_RECORDS = gauge("kohort_rebalance_history_records", "History records in memory.")
HISTORY_BYTES = gauge("kohort_rebalance_history_memory_bytes", "Memory of the history records.")
HISTORY_WAITING = gauge(
    "kohort_rebalance_history_waiting",
    "Rebalances that have ended, but whose record is not written yet.",
)
HISTORY_LOST = counter(
    "kohort_rebalance_history_lost_total",
    "History records that could not be written to __rebalance_history.",
)
HISTORY_DROPPED = counter(
    "kohort_rebalance_history_dropped_total",
    "Rebalances without a history record, because there were too many at once or because of a bug.",
)

OVER_ALL: Final = (
    GROUP_COUNT,
    CONSUMER_GROUP_COUNT,
    CONSUMER_GROUP_REBALANCES,
    CONSUMER_GROUP_REBALANCE_RATE,
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
        "if it is created again before another group takes its series, its counters continue.",
        (
            GROUP_REBALANCES,
            GROUP_AVOIDED,
            GROUP_STOPPED,
            GROUP_MOVED,
            GROUP_REMOVED,
            GROUP_EPOCH_BUMPS,
            GROUP_WAITING_SINCE,
        ),
    ),
    Section(
        "Rebalance history",
        "See rebalance-history.md.",
        (HISTORY_RECORDS, HISTORY_BYTES, HISTORY_WAITING, HISTORY_LOST, HISTORY_DROPPED),
    ),
)
