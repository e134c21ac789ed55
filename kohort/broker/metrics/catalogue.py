"""Every metric that Kohort defines: name, labels and meaning.

Collectors take the names from here, and docs/metrics.md is derived from it. The metrics of
prometheus-client about the process (`process_*`, `python_*`) are not listed.

There are three vocabularies, so that existing dashboards and alerts keep working: kafka_exporter's
names for topics and groups, the JMX exporter's names for Kafka's own meters, and Kohort's
(`kohort_*`) where neither has a name.
"""

from typing import Final

from kohort.broker.metrics import rebalance_catalogue as rebalances
from kohort.broker.metrics import share_catalogue as share
from kohort.broker.metrics import transaction_catalogue as transactions
from kohort.broker.metrics.metric_info import OTHER, Section

_PARTITION: Final = ("topic", "partition")
_GROUP_PARTITION: Final = ("consumergroup", "topic", "partition")

_TOPICS: Final = Section(
    "Topics",
    "Under kafka_exporter's names, and under those of Kafka's own meters. Series of single "
    "partitions are limited by `kohort.metrics.partitions.max`.",
)
BROKERS = _TOPICS.gauge("kafka_brokers", "Brokers in the cluster; always 1.")
BROKER_INFO = _TOPICS.gauge(
    "kafka_broker_info", "1; the labels have the broker's id and address.", "id", "address"
)
TOPIC_PARTITIONS = _TOPICS.gauge("kafka_topic_partitions", "Partitions of the topic.", "topic")
PARTITION_CURRENT_OFFSET = _TOPICS.gauge(
    "kafka_topic_partition_current_offset",
    "High watermark: the offset of the next record that consumers will see.",
    *_PARTITION,
)
PARTITION_OLDEST_OFFSET = _TOPICS.gauge(
    "kafka_topic_partition_oldest_offset", "Offset of the first record that exists.", *_PARTITION
)
PARTITION_LEADER = _TOPICS.gauge(
    "kafka_topic_partition_leader", "Id of the leading broker: this one.", *_PARTITION
)
PARTITION_LEADER_IS_PREFERRED = _TOPICS.gauge(
    "kafka_topic_partition_leader_is_preferred",
    "1 while the preferred replica leads: always, because there is no other replica.",
    *_PARTITION,
)
PARTITION_REPLICAS = _TOPICS.gauge(
    "kafka_topic_partition_replicas", "Replicas of the partition: 1.", *_PARTITION
)
PARTITION_IN_SYNC_REPLICA = _TOPICS.gauge(
    "kafka_topic_partition_in_sync_replica",
    "Replicas that are in sync: 1, or 0 while the partition is offline.",
    *_PARTITION,
)
PARTITION_UNDER_REPLICATED = _TOPICS.gauge(
    "kafka_topic_partition_under_replicated_partition",
    "1 while the partition is offline after a disk error.",
    *_PARTITION,
)
LOG_SIZE = _TOPICS.gauge("kafka_log_log_size", "Bytes of the partition's segments.", *_PARTITION)
LOG_SEGMENTS = _TOPICS.gauge(
    "kafka_log_log_numlogsegments", "Segments of the partition.", *_PARTITION
)
LOST_OFFSETS = _TOPICS.gauge(
    "kohort_partition_lost_offsets",
    "Offsets that were missing when the partition's log was opened, because bytes "
    "of its .log files were lost. Only for partitions with lost offsets.",
    *_PARTITION,
)
TOPIC_APPENDED_BYTES = _TOPICS.counter(
    "kohort_topic_appended_bytes_total",
    "Bytes of batches that became visible in the topic, as stored.",
    "topic",
)
UNCLEANABLE_PARTITIONS = _TOPICS.gauge(
    "kafka_log_logcleanermanager_uncleanable_partitions_count",
    "Partitions whose last compaction failed, or that are compacted only up to a damaged batch.",
)
COMPACTION_FAILURES = _TOPICS.counter(
    "kohort_compaction_failures_total",
    "Failed runs of compaction. They are retried automatically unless the cause is damage.",
)

_GROUPS: Final = Section(
    "Consumer groups",
    "Under kafka_exporter's names. Series are limited by `kohort.metrics.groups.max` and "
    "`kohort.metrics.group.partitions.max`.",
)
GROUP_MEMBERS = _GROUPS.gauge(
    "kafka_consumergroup_members", "Members of the group.", "consumergroup"
)
GROUP_STATE = _GROUPS.gauge(
    "kohort_consumergroup_state",
    "1 for the state that the group is in: Empty, PreparingRebalance, CompletingRebalance, Stable; "
    "of a consumer group Empty, Assigning, Reconciling, Stable.",
    "consumergroup",
    "state",
)
GROUP_EPOCH = _GROUPS.gauge(
    "kohort_consumergroup_epoch",
    "Epoch of a consumer group; grows with every change that may need another assignment.",
    "consumergroup",
)
GROUP_ASSIGNMENT_EPOCH = _GROUPS.gauge(
    "kohort_consumergroup_assignment_epoch",
    "Epoch that the target assignment of a consumer group was computed for.",
    "consumergroup",
)
GROUP_RECONCILING = _GROUPS.gauge(
    "kohort_consumergroup_members_reconciling",
    "Members of a consumer group without their whole target: stable (at an earlier epoch, without "
    "a heartbeat since the target was computed), unrevoked_partitions (they have to give up "
    "partitions), unreleased_partitions (partitions of their target are or were others').",
    "consumergroup",
    "state",
)
GROUP_CURRENT_OFFSET = _GROUPS.gauge(
    "kafka_consumergroup_current_offset",
    "Offset that the group has committed for the partition.",
    *_GROUP_PARTITION,
)
GROUP_CURRENT_OFFSET_SUM = _GROUPS.gauge(
    "kafka_consumergroup_current_offset_sum",
    "Committed offsets, summed over the topic's partitions.",
    "consumergroup",
    "topic",
)
GROUP_LAG = _GROUPS.gauge(
    "kafka_consumergroup_lag",
    "Records from the group's committed offset, or the log start if that is higher, to the high "
    "watermark.",
    *_GROUP_PARTITION,
)
GROUP_LAG_SUM = _GROUPS.gauge(
    "kafka_consumergroup_lag_sum",
    "Lag, summed over the topic's partitions.",
    "consumergroup",
    "topic",
)
GROUP_LAG_SECONDS = _GROUPS.gauge(
    "kohort_consumergroup_lag_seconds",
    "Age of the oldest record that the group has not read, by the record's timestamp; 0 if it has "
    "read all. Absent if it is unknown. Of an earlier scrape if reading takes over two seconds.",
    "consumergroup",
)

_PURGATORY: Final = Section(
    "Purgatory",
    "Operations that wait for a condition or a deadline.",
)
PURGATORY_SIZE = _PURGATORY.gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Operations that wait for a condition, counted once for each partition or group that they "
    "watch.",
    "delayedOperation",
)
NUM_DELAYED_OPERATIONS = _PURGATORY.gauge(
    "kafka_server_delayedoperationpurgatory_numdelayedoperations",
    "Operations and timers that wait for a deadline.",
    "delayedOperation",
)
PURGATORY_HELD_BYTES = _PURGATORY.gauge(
    "kohort_purgatory_held_bytes", "Bytes of requests that waiting operations keep in memory."
)

_REQUESTS: Final = Section(
    "Requests",
    "By API, with Kafka's API names.",
)
REQUESTS = _REQUESTS.counter(
    "kohort_requests_total", "Requests answered, by API and version.", "api", "version"
)
REQUEST_ERRORS = _REQUESTS.counter(
    "kohort_request_errors_total",
    "Error codes in responses. A response for several partitions counts once for each that failed.",
    "api",
    "error",
)
STORAGE_ERRORS = _REQUESTS.counter(
    "kohort_storage_errors_total",
    "KAFKA_STORAGE_ERROR in responses: the disk is full or has failed. One for each partition.",
)
REQUEST_DURATION = _REQUESTS.histogram(
    "kohort_request_duration_seconds",
    "Time from the complete request to its response. It includes waits: for records "
    "(Fetch), for other members (JoinGroup, SyncGroup), for the disk (Produce).",
    "api",
)
REQUESTS_REJECTED = _REQUESTS.counter(
    "kohort_requests_rejected_total",
    "Invalid requests that closed their connection without a response.",
    "reason",
)
ACCESS_DENIED = _REQUESTS.counter(
    "kohort_access_denied_total",
    "Denied operations, by type of resource; one for each resource.",
    "api",
    "resource_type",
)
REQUESTS_WAITING = _REQUESTS.gauge(
    "kohort_requests_waiting", "Requests in flight: started and not answered yet."
)

_CONNECTIONS: Final = Section(
    "Connections",
    "Connections of Kafka clients; connections to the metrics port are not counted.",
)
CONNECTIONS = _CONNECTIONS.gauge("kohort_connections", "Client connections open now.")
CONNECTIONS_OPENED = _CONNECTIONS.counter(
    "kohort_connections_opened_total", "Client connections accepted."
)
CONNECTIONS_REFUSED = _CONNECTIONS.counter(
    "kohort_connections_refused_total",
    "Client connections closed at once; the reason is the setting that limits them.",
    "reason",
)
CONNECTIONS_CLOSED = _CONNECTIONS.counter(
    "kohort_connections_closed_total", "Client connections that ended, by reason.", "reason"
)
AUTHENTICATIONS = _CONNECTIONS.counter(
    "kohort_authentications_total",
    "SASL authentications of clients, by result.",
    "listener",
    "mechanism",
    "result",
)
CERTIFICATE_EXPIRY = _CONNECTIONS.gauge(
    "kohort_tls_certificate_expiry_timestamp_seconds",
    "Time at which the certificate for new connections expires, in seconds since 1970.",
    "listener",
)
TLS_RELOAD_FAILURES = _CONNECTIONS.counter(
    "kohort_tls_reload_failures_total",
    "Key stores and trust stores that could not be loaded; the previous ones stay in use.",
    "listener",
)
USERS_FILE_FAILURES = _CONNECTIONS.counter(
    "kohort_users_file_reload_failures_total",
    "Times that `kohort.users.file` had changed but could not be read; its previous users stay.",
)
RECEIVED_BYTES = _CONNECTIONS.counter("kohort_received_bytes_total", "Bytes received from clients.")
SENT_BYTES = _CONNECTIONS.counter(
    "kohort_sent_bytes_total", "Bytes of responses written to client sockets."
)
REQUEST_BYTES_HELD = _CONNECTIONS.gauge(
    "kohort_request_bytes_held",
    "Memory of requests that are being received or are not answered yet.",
)
RESPONSE_BYTES_HELD = _CONNECTIONS.gauge(
    "kohort_response_bytes_held", "Bytes of responses that slow clients have not read yet."
)

_DISK: Final = Section(
    "Disk",
    "The file system of the data directory. `kafka_log_log_size` has the bytes of partitions.",
)
DISK_BYTES = _DISK.gauge("kohort_disk_bytes", "Size of the file system.")
DISK_FREE_BYTES = _DISK.gauge(
    "kohort_disk_free_bytes", "Free bytes of the file system that the broker may use."
)

_START: Final = Section(
    "The start",
    "While the broker starts, `/metrics` has these and `process_*` alone.",
)
STARTING = _START.gauge(
    "kohort_starting",
    "1 while the broker starts: verifies logs, and loads groups and transactions; 0 afterwards.",
)
STARTUP_PARTITIONS = _START.gauge(
    "kohort_startup_partitions",
    "Partitions to verify at this start, after an unclean shutdown.",
)
STARTUP_PARTITIONS_VERIFIED = _START.gauge(
    "kohort_startup_partitions_verified", "Partitions that have been verified at this start."
)
STARTUP_BYTES = _START.gauge(
    "kohort_startup_bytes", "Bytes of the segments to verify at this start."
)
STARTUP_BYTES_VERIFIED = _START.gauge(
    "kohort_startup_bytes_verified", "Bytes that have been verified at this start."
)

_PROCESS: Final = Section(
    "The process",
    "In addition, prometheus-client adds `process_*` and `python_*`.",
)
LOOP_LAG = _PROCESS.histogram(
    "kohort_event_loop_lag_seconds",
    "Delay with which the event loop runs a timer, measured 20 times a second: every "
    "request waits at least this long.",
)
LOOP_LAG_MAX = _PROCESS.gauge(
    "kohort_event_loop_lag_max_seconds", "Largest event loop lag of the last one to two minutes."
)
GC_PAUSE = _PROCESS.histogram(
    "kohort_gc_pause_seconds",
    "Time for which garbage collections stopped the process.",
    "generation",
)
TASK_FAILURES = _PROCESS.counter(
    "kohort_task_failures_total",
    "Internal errors in the broker's background tasks, such as compaction, retention and expiry, "
    "by task. A failed task is restarted after a delay.",
    "task",
)
TASKS_FAILING = _PROCESS.gauge(
    "kohort_tasks_failing",
    "Background tasks that have failed and, since their restart, have not run for as long as the "
    "delay of the restart.",
)
BUILD_INFO = _PROCESS.gauge("kohort_build_info", "1; the label has the version.", "version")
FOLDED = _PROCESS.gauge(
    "kohort_metrics_folded",
    "Topics, partitions or groups (label kind) without series of their own; they are "
    f"summed under {OTHER}.",
    "kind",
)
SCRAPE_SECONDS = _PROCESS.gauge(
    "kohort_scrape_seconds",
    "Duration of the previous scrape, which runs in small slices between the broker's work.",
)

SECTIONS: Final = (
    _TOPICS,
    _GROUPS,
    *rebalances.SECTIONS,
    transactions.SECTION,
    share.SECTION,
    _PURGATORY,
    _REQUESTS,
    _CONNECTIONS,
    _DISK,
    _START,
    _PROCESS,
)

METRICS: Final = {metric.name: metric for section in SECTIONS for metric in section.metrics}
