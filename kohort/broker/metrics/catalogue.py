"""Every metric that Kohort defines: name, labels and meaning.

Collectors take the names from here, and docs/metrics.md is derived from it. The metrics of
prometheus-client about the process (`process_*`, `python_*`) are not listed.

There are three vocabularies, so that existing dashboards and alerts keep working: kafka_exporter's
names for topics and groups, the JMX exporter's names for Kafka's own meters, and Kohort's
(`kohort_*`) where neither has a name.
"""

from typing import Final

from kohort.broker.metrics import rebalance_catalogue as rebalances
from kohort.broker.metrics import transaction_catalogue as transactions
from kohort.broker.metrics.metric_info import (
    OTHER,
    Section,
    counter,
    gauge,
    histogram,
)

_PARTITION: Final = ("topic", "partition")
_GROUP_PARTITION: Final = ("consumergroup", "topic", "partition")

BROKERS = gauge("kafka_brokers", "Brokers in the cluster; always 1.")
BROKER_INFO = gauge(
    "kafka_broker_info", "1; the labels have the broker's id and address.", "id", "address"
)
TOPIC_PARTITIONS = gauge("kafka_topic_partitions", "Partitions of the topic.", "topic")
PARTITION_CURRENT_OFFSET = gauge(
    "kafka_topic_partition_current_offset",
    "High watermark: the offset of the next record that consumers will see.",
    *_PARTITION,
)
PARTITION_OLDEST_OFFSET = gauge(
    "kafka_topic_partition_oldest_offset", "Offset of the first record that exists.", *_PARTITION
)
PARTITION_LEADER = gauge(
    "kafka_topic_partition_leader", "Id of the leading broker: this one.", *_PARTITION
)
PARTITION_LEADER_IS_PREFERRED = gauge(
    "kafka_topic_partition_leader_is_preferred",
    "1 while the preferred replica leads: always, because there is no other replica.",
    *_PARTITION,
)
PARTITION_REPLICAS = gauge(
    "kafka_topic_partition_replicas", "Replicas of the partition: 1.", *_PARTITION
)
PARTITION_IN_SYNC_REPLICA = gauge(
    "kafka_topic_partition_in_sync_replica",
    "Replicas that are in sync: 1, or 0 while the partition is offline.",
    *_PARTITION,
)
PARTITION_UNDER_REPLICATED = gauge(
    "kafka_topic_partition_under_replicated_partition",
    "1 while the partition is offline after a disk error.",
    *_PARTITION,
)
LOG_SIZE = gauge("kafka_log_log_size", "Bytes of the partition's segments.", *_PARTITION)
LOG_SEGMENTS = gauge("kafka_log_log_numlogsegments", "Segments of the partition.", *_PARTITION)
UNCLEANABLE_PARTITIONS = gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "Partitions whose last compaction failed, or that are compacted only up to a damaged batch.",
)
COMPACTION_FAILURES = counter(
    "kohort_compaction_failures_total",
    "Failed runs of compaction. They are retried automatically unless the cause is damage.",
)
LOST_OFFSETS = gauge(
    "kohort_partition_lost_offsets",
    "Offsets that were missing when the partition's log was opened, because bytes "
    "of its .log files were lost. Only for partitions with lost offsets.",
    *_PARTITION,
)
TOPIC_APPENDED_BYTES = counter(
    "kohort_topic_appended_bytes_total",
    "Bytes of batches that became visible in the topic, as stored.",
    "topic",
)

GROUP_CURRENT_OFFSET = gauge(
    "kafka_consumergroup_current_offset",
    "Offset that the group has committed for the partition.",
    *_GROUP_PARTITION,
)
GROUP_CURRENT_OFFSET_SUM = gauge(
    "kafka_consumergroup_current_offset_sum",
    "Committed offsets, summed over the topic's partitions.",
    "consumergroup",
    "topic",
)
GROUP_LAG = gauge(
    "kafka_consumergroup_lag",
    "Records from the group's committed offset, or the log start if that is higher, to the high "
    "watermark.",
    *_GROUP_PARTITION,
)
GROUP_LAG_SUM = gauge(
    "kafka_consumergroup_lag_sum",
    "Lag, summed over the topic's partitions.",
    "consumergroup",
    "topic",
)
GROUP_LAG_SECONDS = gauge(
    "kohort_consumergroup_lag_seconds",
    "Age of the oldest record that the group has not read, by the record's timestamp; 0 if it has "
    "read all. Absent if it is unknown. Of an earlier scrape if reading takes over two seconds.",
    "consumergroup",
)
GROUP_MEMBERS = gauge("kafka_consumergroup_members", "Members of the group.", "consumergroup")
GROUP_STATE = gauge(
    "kohort_consumergroup_state",
    "1 for the state that the group is in: Empty, PreparingRebalance, CompletingRebalance, Stable; "
    "of a consumer group Empty, Assigning, Reconciling, Stable.",
    "consumergroup",
    "state",
)
GROUP_EPOCH = gauge(
    "kohort_consumergroup_epoch",
    "Epoch of a consumer group; grows with every change that may need another assignment.",
    "consumergroup",
)
GROUP_ASSIGNMENT_EPOCH = gauge(
    "kohort_consumergroup_assignment_epoch",
    "Epoch that the target assignment of a consumer group was computed for.",
    "consumergroup",
)
GROUP_RECONCILING = gauge(
    "kohort_consumergroup_members_reconciling",
    "Members of a consumer group without their whole target: stable (at an earlier epoch, without "
    "a heartbeat since the target was computed), unrevoked_partitions (they have to give up "
    "partitions), unreleased_partitions (partitions of their target are or were others').",
    "consumergroup",
    "state",
)

_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager"
NUM_GROUPS = gauge(f"{_MANAGER}_numgroups", "Classic groups.")
NUM_GROUPS_BY_STATE: Final = {
    state: gauge(f"{_MANAGER}_numgroups{state.lower()}", f"Classic groups in state {state}.")
    for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
}
NUM_OFFSETS = gauge(f"{_MANAGER}_numoffsets", "Committed offsets that are stored.")

PURGATORY_SIZE = gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Operations that wait for a condition, counted once for each partition or group that they "
    "watch.",
    "delayedOperation",
)
NUM_DELAYED_OPERATIONS = gauge(
    "kafka_server_delayedoperationpurgatory_numdelayedoperations",
    "Operations and timers that wait for a deadline.",
    "delayedOperation",
)
PURGATORY_HELD_BYTES = gauge(
    "kohort_purgatory_held_bytes", "Bytes of requests that waiting operations keep in memory."
)

REQUESTS = counter(
    "kohort_requests_total", "Requests answered, by API and version.", "api", "version"
)
REQUEST_ERRORS = counter(
    "kohort_request_errors_total",
    "Error codes in responses. A response for several partitions counts once for each that failed.",
    "api",
    "error",
)
REQUEST_DURATION = histogram(
    "kohort_request_duration_seconds",
    "Time from the complete request to its response. It includes waits: for records "
    "(Fetch), for other members (JoinGroup, SyncGroup), for the disk (Produce).",
    "api",
)
STORAGE_ERRORS = counter(
    "kohort_storage_errors_total",
    "KAFKA_STORAGE_ERROR in responses: the disk is full or has failed. One for each partition.",
)
REQUESTS_REJECTED = counter(
    "kohort_requests_rejected_total",
    "Invalid requests that closed their connection without a response.",
    "reason",
)
ACCESS_DENIED = counter(
    "kohort_access_denied_total",
    "Denied operations, by type of resource; one for each resource.",
    "api",
    "resource_type",
)
REQUESTS_WAITING = gauge(
    "kohort_requests_waiting", "Requests in flight: started and not answered yet."
)

REQUEST_BYTES_HELD = gauge(
    "kohort_request_bytes_held",
    "Memory of requests that are being received or are not answered yet.",
)
RESPONSE_BYTES_HELD = gauge(
    "kohort_response_bytes_held", "Bytes of responses that slow clients have not read yet."
)

CONNECTIONS = gauge("kohort_connections", "Client connections open now.")
CONNECTIONS_OPENED = counter("kohort_connections_opened_total", "Client connections accepted.")
CONNECTIONS_REFUSED = counter(
    "kohort_connections_refused_total",
    "Client connections closed at once; the reason is the setting that limits them.",
    "reason",
)
CONNECTIONS_CLOSED = counter(
    "kohort_connections_closed_total", "Client connections that ended, by reason.", "reason"
)
CERTIFICATE_EXPIRY = gauge(
    "kohort_tls_certificate_expiry_timestamp_seconds",
    "Time at which the certificate for new connections expires, in seconds since 1970.",
    "listener",
)
TLS_RELOAD_FAILURES = counter(
    "kohort_tls_reload_failures_total",
    "Key stores and trust stores that could not be loaded; the previous ones stay in use.",
    "listener",
)
USERS_FILE_FAILURES = counter(
    "kohort_users_file_reload_failures_total",
    "Times that `kohort.users.file` had changed but could not be read; its previous users stay.",
)
AUTHENTICATIONS = counter(
    "kohort_authentications_total",
    "SASL authentications of clients, by result.",
    "listener",
    "mechanism",
    "result",
)
RECEIVED_BYTES = counter("kohort_received_bytes_total", "Bytes received from clients.")
SENT_BYTES = counter("kohort_sent_bytes_total", "Bytes of responses written to client sockets.")

LOOP_LAG = histogram(
    "kohort_event_loop_lag_seconds",
    "Delay with which the event loop runs a timer, measured 20 times a second: every "
    "request waits at least this long.",
)
LOOP_LAG_MAX = gauge(
    "kohort_event_loop_lag_max_seconds", "Largest event loop lag of the last one to two minutes."
)
GC_PAUSE = histogram(
    "kohort_gc_pause_seconds",
    "Time for which garbage collections stopped the process.",
    "generation",
)
TASK_FAILURES = counter(
    "kohort_task_failures_total",
    "Internal errors in the broker's background tasks, such as compaction, retention and expiry, "
    "by task. A failed task is restarted after a delay.",
    "task",
)
TASKS_FAILING = gauge(
    "kohort_tasks_failing",
    "Background tasks that have failed and, since their restart, have not run for as long as the "
    "delay of the restart.",
)
BUILD_INFO = gauge("kohort_build_info", "1; the label has the version.", "version")
FOLDED = gauge(
    "kohort_metrics_folded",
    "Topics, partitions or groups (label kind) without series of their own; they are "
    f"summed under {OTHER}.",
    "kind",
)
SCRAPE_SECONDS = gauge(
    "kohort_scrape_seconds",
    "Duration of the previous scrape, which runs in small slices between the broker's work.",
)

DISK_BYTES = gauge("kohort_disk_bytes", "Size of the file system.")
DISK_FREE_BYTES = gauge(
    "kohort_disk_free_bytes", "Free bytes of the file system that the broker may use."
)

STARTING = gauge(
    "kohort_starting",
    "1 while the broker starts: verifies logs, and loads groups and transactions; 0 afterwards.",
)
STARTUP_PARTITIONS = gauge(
    "kohort_startup_partitions",
    "Partitions to verify at this start, after an unclean shutdown.",
)
STARTUP_PARTITIONS_VERIFIED = gauge(
    "kohort_startup_partitions_verified", "Partitions that have been verified at this start."
)
STARTUP_BYTES = gauge("kohort_startup_bytes", "Bytes of the segments to verify at this start.")
STARTUP_BYTES_VERIFIED = gauge(
    "kohort_startup_bytes_verified", "Bytes that have been verified at this start."
)

SECTIONS: Final = (
    Section(
        "Topics",
        "Under kafka_exporter's names, and under those of Kafka's own meters. Series of single "
        "partitions are limited by `kohort.metrics.partitions.max`.",
        (
            BROKERS,
            BROKER_INFO,
            TOPIC_PARTITIONS,
            PARTITION_CURRENT_OFFSET,
            PARTITION_OLDEST_OFFSET,
            PARTITION_LEADER,
            PARTITION_LEADER_IS_PREFERRED,
            PARTITION_REPLICAS,
            PARTITION_IN_SYNC_REPLICA,
            PARTITION_UNDER_REPLICATED,
            LOG_SIZE,
            LOG_SEGMENTS,
            LOST_OFFSETS,
            TOPIC_APPENDED_BYTES,
            UNCLEANABLE_PARTITIONS,
            COMPACTION_FAILURES,
        ),
    ),
    Section(
        "Consumer groups",
        "Under kafka_exporter's names. Series are limited by `kohort.metrics.groups.max` and "
        "`kohort.metrics.group.partitions.max`.",
        (
            GROUP_MEMBERS,
            GROUP_STATE,
            GROUP_EPOCH,
            GROUP_ASSIGNMENT_EPOCH,
            GROUP_RECONCILING,
            GROUP_CURRENT_OFFSET,
            GROUP_CURRENT_OFFSET_SUM,
            GROUP_LAG,
            GROUP_LAG_SUM,
            GROUP_LAG_SECONDS,
        ),
    ),
    Section(
        "Group coordinator",
        "Over all groups. Metrics that Kafka also has have Kafka's names; Kafka counts "
        "groups once a minute, whereas these counts are exact. There is no event queue between "
        "a request and its group: instead of Kafka's event-queue-time-ms, "
        "event-processing-time-ms and event-purgatory-time-ms, use the request times "
        "and the lag of the event loop.",
        (
            NUM_GROUPS,
            *NUM_GROUPS_BY_STATE.values(),
            NUM_OFFSETS,
            *rebalances.OVER_ALL,
        ),
    ),
    *rebalances.SECTIONS,
    *transactions.SECTIONS,
    Section(
        "Purgatory",
        "Operations that wait for a condition or a deadline.",
        (PURGATORY_SIZE, NUM_DELAYED_OPERATIONS, PURGATORY_HELD_BYTES),
    ),
    Section(
        "Requests",
        "By API, with Kafka's API names.",
        (
            REQUESTS,
            REQUEST_ERRORS,
            STORAGE_ERRORS,
            REQUEST_DURATION,
            REQUESTS_REJECTED,
            ACCESS_DENIED,
            REQUESTS_WAITING,
        ),
    ),
    Section(
        "Connections",
        "Connections of Kafka clients; connections to the metrics port are not counted.",
        (
            CONNECTIONS,
            CONNECTIONS_OPENED,
            CONNECTIONS_REFUSED,
            CONNECTIONS_CLOSED,
            AUTHENTICATIONS,
            CERTIFICATE_EXPIRY,
            TLS_RELOAD_FAILURES,
            USERS_FILE_FAILURES,
            RECEIVED_BYTES,
            SENT_BYTES,
            REQUEST_BYTES_HELD,
            RESPONSE_BYTES_HELD,
        ),
    ),
    Section(
        "Disk",
        "The file system of the data directory. `kafka_log_log_size` has the bytes of partitions.",
        (DISK_BYTES, DISK_FREE_BYTES),
    ),
    Section(
        "The start",
        "While the broker starts, `/metrics` has these and `process_*` alone.",
        (
            STARTING,
            STARTUP_PARTITIONS,
            STARTUP_PARTITIONS_VERIFIED,
            STARTUP_BYTES,
            STARTUP_BYTES_VERIFIED,
        ),
    ),
    Section(
        "The process",
        "In addition, prometheus-client adds `process_*` and `python_*`.",
        (
            LOOP_LAG,
            LOOP_LAG_MAX,
            GC_PAUSE,
            TASK_FAILURES,
            TASKS_FAILING,
            BUILD_INFO,
            FOLDED,
            SCRAPE_SECONDS,
        ),
    ),
)

METRICS: Final = {metric.name: metric for section in SECTIONS for metric in section.metrics}
