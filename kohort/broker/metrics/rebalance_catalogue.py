"""The metrics of the group coordinator, of rebalances and of members; part of the catalogue."""

from typing import Final

from kohort.broker.metrics.metric_info import OTHER, Section

_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager"
_COORDINATOR: Final = "kafka_server_group_coordinator_metrics"
_PER_SECOND: Final = "per second."

_GROUPS: Final = Section(
    "Group coordinator",
    "Over all groups, mostly under Kafka's names. Kafka counts groups once a minute; these "
    "counts are exact. There is no event queue between a request and its group: instead of "
    "Kafka's event-queue-time-ms, event-processing-time-ms and event-purgatory-time-ms, use the "
    "request times and the lag of the event loop. Rates are of the last 30 to 60 seconds, measured "
    "between scrapes.",
)
NUM_GROUPS = _GROUPS.gauge(f"{_MANAGER}_numgroups", "Classic groups.")
NUM_GROUPS_BY_STATE: Final = {
    state: _GROUPS.gauge(
        f"{_MANAGER}_numgroups{state.lower()}", f"Classic groups in state {state}."
    )
    for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
}
NUM_OFFSETS = _GROUPS.gauge(f"{_MANAGER}_numoffsets", "Committed offsets that are stored.")
GROUP_COUNT = _GROUPS.gauge(
    f"{_COORDINATOR}_group_count", "Groups, by the protocol they speak.", "protocol"
)
CONSUMER_GROUP_COUNT = _GROUPS.gauge(
    f"{_COORDINATOR}_consumer_group_count", "Consumer groups (KIP-848), by state.", "state"
)
CONSUMER_GROUP_REBALANCES = _GROUPS.unknown(
    f"{_COORDINATOR}_consumer_group_rebalance_count",
    "Bumps of the epochs of consumer groups, which Kafka calls rebalances, since the start.",
)
CONSUMER_GROUP_REBALANCE_RATE = _GROUPS.gauge(
    f"{_COORDINATOR}_consumer_group_rebalance_rate", f"Epoch bumps of consumer groups {_PER_SECOND}"
)
SHARE_GROUP_COUNT = _GROUPS.gauge(
    f"{_COORDINATOR}_share_group_count", "Share groups (KIP-932), by state.", "state"
)
SHARE_GROUP_REBALANCES = _GROUPS.unknown(
    f"{_COORDINATOR}_share_group_rebalance_count",
    "Bumps of the epochs of share groups, which Kafka calls rebalances, since the start.",
)
SHARE_GROUP_REBALANCE_RATE = _GROUPS.gauge(
    f"{_COORDINATOR}_share_group_rebalance_rate", f"Epoch bumps of share groups {_PER_SECOND}"
)
PARTITION_LOAD_MAX = _GROUPS.gauge(
    f"{_COORDINATOR}_partition_load_time_max",
    "Longest time to load one partition of __consumer_offsets at the start, in milliseconds.",
)
PARTITION_LOAD_AVG = _GROUPS.gauge(
    f"{_COORDINATOR}_partition_load_time_avg",
    "Mean time to load a partition of __consumer_offsets at the start, over those with records.",
)
COMPLETED_REBALANCES = _GROUPS.unknown(
    f"{_COORDINATOR}_group_completed_rebalance_count",
    "Rebalances of classic groups that ended with an assignment, stored and sent to members, since "
    "the start.",
)
COMPLETED_REBALANCE_RATE = _GROUPS.gauge(
    f"{_COORDINATOR}_group_completed_rebalance_rate", f"Completed rebalances {_PER_SECOND}"
)
OFFSET_COMMITS = _GROUPS.unknown(
    f"{_COORDINATOR}_offset_commit_count", "Committed offsets since the start."
)
OFFSET_COMMIT_RATE = _GROUPS.gauge(
    f"{_COORDINATOR}_offset_commit_rate", f"Offsets committed {_PER_SECOND}"
)
OFFSET_EXPIRATIONS = _GROUPS.unknown(
    f"{_COORDINATOR}_offset_expiration_count",
    "Committed offsets that expired since the start.",
)
OFFSET_EXPIRATION_RATE = _GROUPS.gauge(
    f"{_COORDINATOR}_offset_expiration_rate", f"Offsets expired {_PER_SECOND}"
)
OFFSET_DELETIONS = _GROUPS.unknown(
    f"{_COORDINATOR}_offset_deletion_count",
    "Committed offsets deleted on request or with their topic, since the start.",
)
OFFSET_DELETION_RATE = _GROUPS.gauge(
    f"{_COORDINATOR}_offset_deletion_rate", f"Offsets deleted {_PER_SECOND}"
)
PARKED_JOINS = _GROUPS.gauge(
    "kohort_group_parked_joins", "JoinGroup requests that wait for other members."
)
PARKED_SYNCS = _GROUPS.gauge(
    "kohort_group_parked_syncs", "SyncGroup requests that wait for the leader."
)
PENDING_IDS = _GROUPS.gauge(
    "kohort_group_pending_ids", "Member ids that were assigned, but not used to join yet."
)

_REBALANCES: Final = Section(
    "Rebalances",
    "Over all groups, since the start.",
)
STARTED = _REBALANCES.counter(
    "kohort_rebalances_started_total",
    "Rebalances that started, by the cause that the broker observed.",
    "cause",
)
AVOIDED = _REBALANCES.counter(
    "kohort_rebalances_avoided_total",
    "Joins that could have started a rebalance but did not, by cause and the member's stated "
    "reason.",
    "cause",
    "reason",
)
PHASES = _REBALANCES.histogram(
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
STOPPED = _REBALANCES.counter(
    "kohort_rebalance_stopped_seconds_total",
    "Time that members were stopped by rebalances, summed over members; in consumer groups, the "
    "time for which partitions that they gained had no owner. Counted when the record of the "
    "rebalance is complete.",
)
PARTITIONS_MOVED = _REBALANCES.counter(
    "kohort_rebalance_partitions_moved_total",
    "Partitions that moved from one member to another, in groups with the protocol type consumer.",
)
MEMBERS_REMOVED = _REBALANCES.counter(
    "kohort_group_members_removed_total", "Members that left or were removed, by cause.", "cause"
)
RUNNING = _REBALANCES.gauge("kohort_rebalances_running", "Groups with a rebalance in progress.")

_BY_GROUP: Final = Section(
    "Rebalances by group",
    "The first `kohort.metrics.groups.max` groups that rebalance have series of their own; the "
    f"others are counted under `{OTHER}`. Their counts stay there when one of them gets series "
    "of its own, so that no counter decreases. A deleted group is shown for 15 more minutes; "
    "if it is created again before another group takes its series, its counters continue.",
)
GROUP_REBALANCES = _BY_GROUP.counter(
    "kafka_consumergroup_rebalances_total",
    "Rebalances of the group that started, by the observed cause and the group's protocol.",
    "consumergroup",
    "cause",
    "protocol",
)
GROUP_AVOIDED = _BY_GROUP.counter(
    "kohort_consumergroup_rebalances_avoided_total",
    "Joins that could have started a rebalance of the group but did not, by the stated reason.",
    "consumergroup",
    "reason",
)
GROUP_STOPPED = _BY_GROUP.counter(
    "kohort_consumergroup_stopped_seconds_total",
    "Time that members of the group were stopped by rebalances, summed over members.",
    "consumergroup",
)
GROUP_MOVED = _BY_GROUP.counter(
    "kohort_consumergroup_partitions_moved_total",
    "Partitions that moved from one member of the group to another.",
    "consumergroup",
)
GROUP_REMOVED = _BY_GROUP.counter(
    "kohort_consumergroup_members_removed_total",
    "Members that left the group or were removed, by cause.",
    "consumergroup",
    "cause",
)
GROUP_POLL_TIMEOUTS = _BY_GROUP.counter(
    "kohort_consumergroup_poll_timeouts_total",
    "Members whose application had stopped polling: removed at the rebalance timeout, or left with "
    "such a reason, after 10 s of heartbeats without a Fetch, or after 10 s of a rebalance that "
    "waited for members.",
    "consumergroup",
)
GROUP_EPOCH_BUMPS = _BY_GROUP.counter(
    "kohort_consumergroup_epoch_bumps_total",
    "Bumps of the epoch of a consumer group or a share group, by cause.",
    "consumergroup",
    "cause",
)
GROUP_WAITING_SINCE = _BY_GROUP.gauge(
    "kohort_consumergroup_rebalance_waiting_since_seconds",
    "Start time of the group's unfinished rebalance, in seconds since 1970; absent if there is "
    f"none. Under {OTHER}: the earliest of the other groups.",
    "consumergroup",
)

_HISTORY: Final = Section(
    "Rebalance history",
    "See [rebalance-history.md](rebalance-history.md).",
)
HISTORY_RECORDS = _HISTORY.gauge("kohort_rebalance_history_records", "History records in memory.")
HISTORY_BYTES = _HISTORY.gauge(
    "kohort_rebalance_history_memory_bytes", "Memory of the history records."
)
HISTORY_WAITING = _HISTORY.gauge(
    "kohort_rebalance_history_waiting",
    "Rebalances that have ended, but whose record is not written yet.",
)
HISTORY_LOST = _HISTORY.counter(
    "kohort_rebalance_history_lost_total",
    "History records that could not be written to __rebalance_history.",
)
HISTORY_DROPPED = _HISTORY.counter(
    "kohort_rebalance_history_dropped_total",
    "Rebalances without a history record, because there were too many at once or because of a bug.",
)

SECTIONS: Final = (_GROUPS, _REBALANCES, _BY_GROUP, _HISTORY)
