"""Every metric that we define ourselves: name, labels and meaning, each said once.

Collectors take the names from here, and docs/metrics.md is derived from it. What prometheus-client
adds about the process (`process_*`, `python_*`) is not listed.

Three vocabularies, so that dashboards and alerts which people have keep working: kafka_exporter's
names for topics and groups, the names that Prometheus' JMX exporter gives to Kafka's own meters,
and ours (`kohort_*`) where neither has a word.
"""

from typing import Final, Literal

from protocol.lazy_dataclass import dataclass

Kind = Literal["counter", "gauge", "histogram", "unknown"]

OTHER: Final = "(other)"
"""Label value under which everything beyond a limit is summed. No topic can be called so."""


@dataclass(frozen=True, slots=True)
class MetricInfo:
    """One metric family."""

    name: str
    """As it is scraped; a counter's ends with _total."""
    kind: Kind
    labels: tuple[str, ...]
    doc: str


@dataclass(frozen=True, slots=True)
class Section:
    """Metrics that are documented together."""

    title: str
    doc: str
    metrics: tuple[MetricInfo, ...]


def _counter(name: str, doc: str, *labels: str) -> MetricInfo:
    assert name.endswith("_total"), name
    return MetricInfo(name, "counter", labels, doc)


def _gauge(name: str, doc: str, *labels: str) -> MetricInfo:
    return MetricInfo(name, "gauge", labels, doc)


def _histogram(name: str, doc: str, *labels: str) -> MetricInfo:
    return MetricInfo(name, "histogram", labels, doc)


def _unknown(name: str, doc: str, *labels: str) -> MetricInfo:
    """A count under a name that must not get the _total which counters end with."""
    return MetricInfo(name, "unknown", labels, doc)


_PARTITION: Final = ("topic", "partition")
_GROUP_PARTITION: Final = ("consumergroup", "topic", "partition")

BROKERS = _gauge("kafka_brokers", "Brokers in the cluster; always 1.")
BROKER_INFO = _gauge("kafka_broker_info", "1; the labels say who and where.", "id", "address")
TOPIC_PARTITIONS = _gauge("kafka_topic_partitions", "Partitions of the topic.", "topic")
PARTITION_CURRENT_OFFSET = _gauge(
    "kafka_topic_partition_current_offset",
    "High watermark: the offset of the next record that consumers will see.",
    *_PARTITION,
)
PARTITION_OLDEST_OFFSET = _gauge(
    "kafka_topic_partition_oldest_offset", "Offset of the first record there is.", *_PARTITION
)
PARTITION_LEADER = _gauge(
    "kafka_topic_partition_leader", "Id of the leading broker: this one.", *_PARTITION
)
PARTITION_LEADER_IS_PREFERRED = _gauge(
    "kafka_topic_partition_leader_is_preferred",
    "1 while the preferred replica leads: always, there being no other.",
    *_PARTITION,
)
PARTITION_REPLICAS = _gauge(
    "kafka_topic_partition_replicas", "Replicas of the partition: 1.", *_PARTITION
)
PARTITION_IN_SYNC_REPLICA = _gauge(
    "kafka_topic_partition_in_sync_replica",
    "Replicas that are in sync: 1, or 0 while the partition is offline.",
    *_PARTITION,
)
PARTITION_UNDER_REPLICATED = _gauge(
    "kafka_topic_partition_under_replicated_partition",
    "1 while the partition is offline after an error of its disk.",
    *_PARTITION,
)
LOG_SIZE = _gauge("kafka_log_log_size", "Bytes of the partition's segments.", *_PARTITION)
LOG_SEGMENTS = _gauge("kafka_log_log_numlogsegments", "Segments of the partition.", *_PARTITION)
TOPIC_APPENDED_BYTES = _counter(
    "kohort_topic_appended_bytes_total",
    "Bytes of batches that became visible in the topic, as stored.",
    "topic",
)

GROUP_CURRENT_OFFSET = _gauge(
    "kafka_consumergroup_current_offset",
    "Offset that the group has committed for the partition.",
    *_GROUP_PARTITION,
)
GROUP_CURRENT_OFFSET_SUM = _gauge(
    "kafka_consumergroup_current_offset_sum",
    "Committed offsets, summed over the topic's partitions.",
    "consumergroup",
    "topic",
)
GROUP_LAG = _gauge(
    "kafka_consumergroup_lag",
    "Records from the group's committed offset to the high watermark.",
    *_GROUP_PARTITION,
)
GROUP_LAG_SUM = _gauge(
    "kafka_consumergroup_lag_sum",
    "Lag, summed over the topic's partitions.",
    "consumergroup",
    "topic",
)
GROUP_MEMBERS = _gauge("kafka_consumergroup_members", "Members of the group.", "consumergroup")
GROUP_STATE = _gauge(
    "kohort_consumergroup_state",
    "1 for the state that the group is in: Empty, PreparingRebalance, CompletingRebalance, Stable.",
    "consumergroup",
    "state",
)

_MANAGER: Final = "kafka_coordinator_group_groupmetadatamanager"
NUM_GROUPS = _gauge(f"{_MANAGER}_numgroups", "Groups.")
NUM_GROUPS_BY_STATE: Final = {
    state: _gauge(f"{_MANAGER}_numgroups{state.lower()}", f"Groups in state {state}.")
    for state in ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty")
}
NUM_OFFSETS = _gauge(f"{_MANAGER}_numoffsets", "Committed offsets that are stored.")

_COORDINATOR: Final = "kafka_server_group_coordinator_metrics"
COMPLETED_REBALANCES = _unknown(
    f"{_COORDINATOR}_group_completed_rebalance_count",
    "Rebalances that ended with an assignment, stored and handed out; a count since the start.",
)
OFFSET_COMMITS = _unknown(
    f"{_COORDINATOR}_offset_commit_count", "Offsets that were committed, since the start."
)
OFFSET_EXPIRATIONS = _unknown(
    f"{_COORDINATOR}_offset_expiration_count",
    "Committed offsets dropped because nobody used them for too long, since the start.",
)
OFFSET_DELETIONS = _unknown(
    f"{_COORDINATOR}_offset_deletion_count",
    "Committed offsets deleted on request or with their topic, since the start.",
)
REBALANCES_STARTED = _counter(
    "kohort_rebalances_started_total", "Rebalances that began, by what the broker saw.", "cause"
)
REBALANCES_AVOIDED = _counter(
    "kohort_rebalances_avoided_total",
    "Joins that might have started a rebalance and did not, with the reason that the member gave.",
    "cause",
    "reason",
)
REBALANCE_PHASE = _histogram(
    "kohort_rebalance_phase_seconds",
    "How long rebalances waited for members to join (phase join) and for the leader's assignment "
    "(phase sync).",
    "phase",
)
MEMBERS_REMOVED = _counter(
    "kohort_group_members_removed_total", "Members that ceased to be one, and why.", "cause"
)

PURGATORY_SIZE = _gauge(
    "kafka_server_delayedoperationpurgatory_purgatorysize",
    "Operations that wait for a condition, counted once for each partition or group that they "
    "watch.",
    "delayedOperation",
)
NUM_DELAYED_OPERATIONS = _gauge(
    "kafka_server_delayedoperationpurgatory_numdelayedoperations",
    "Operations and timers that wait for a deadline.",
    "delayedOperation",
)
PURGATORY_HELD_BYTES = _gauge(
    "kohort_purgatory_held_bytes", "Bytes of requests that operations which wait keep in memory."
)

REQUESTS = _counter(
    "kohort_requests_total", "Requests answered, by api and its version.", "api", "version"
)
REQUEST_ERRORS = _counter(
    "kohort_request_errors_total",
    "Error codes in answers. An answer about many partitions counts once for each that failed.",
    "api",
    "error",
)
REQUEST_DURATION = _histogram(
    "kohort_request_duration_seconds",
    "From the whole request to its answer. Waiting is included: for records (Fetch), for other "
    "members (JoinGroup, SyncGroup), for the disk (Produce).",
    "api",
)
REQUESTS_REJECTED = _counter(
    "kohort_requests_rejected_total",
    "Requests that could not be answered and ended their connection.",
    "reason",
)
REQUESTS_WAITING = _gauge(
    "kohort_requests_waiting", "Requests in flight: taken up and not answered yet."
)

REQUEST_BYTES_HELD = _gauge(
    "kohort_request_bytes_held",
    "Memory of requests that are being received or have no answer yet.",
)
RESPONSE_BYTES_HELD = _gauge(
    "kohort_response_bytes_held", "Answers that clients which read slowly have not taken yet."
)

CONNECTIONS = _gauge("kohort_connections", "Client connections open now.")
CONNECTIONS_OPENED = _counter("kohort_connections_opened_total", "Client connections accepted.")
CONNECTIONS_REFUSED = _counter(
    "kohort_connections_refused_total",
    "Client connections closed at once; the reason is the setting that limits them.",
    "reason",
)
CONNECTIONS_CLOSED = _counter(
    "kohort_connections_closed_total", "Client connections that ended, and why.", "reason"
)
RECEIVED_BYTES = _counter("kohort_received_bytes_total", "Bytes received from clients.")
SENT_BYTES = _counter("kohort_sent_bytes_total", "Bytes of answers handed to client sockets.")

LOOP_LAG = _histogram(
    "kohort_event_loop_lag_seconds",
    "How much later than due the event loop runs a timer, at 20 moments a second: the wait that "
    "everything else begins with.",
)
LOOP_LAG_MAX = _gauge(
    "kohort_event_loop_lag_max_seconds", "The largest lag of the last one to two minutes."
)
GC_PAUSE = _histogram(
    "kohort_gc_pause_seconds", "Time that garbage collections stopped everything.", "generation"
)
BUILD_INFO = _gauge("kohort_build_info", "1; the label says which version runs.", "version")
FOLDED = _gauge(
    "kohort_metrics_folded",
    f"How many have no series of their own and are summed under {OTHER}: kind is topics, "
    "partitions or groups.",
    "kind",
)
SCRAPE_SECONDS = _gauge(
    "kohort_scrape_seconds",
    "What the previous scrape took, in small slices between which the broker went on.",
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
            TOPIC_APPENDED_BYTES,
        ),
    ),
    Section(
        "Consumer groups",
        "Under kafka_exporter's names. Series are limited by `kohort.metrics.groups.max` and "
        "`kohort.metrics.group.partitions.max`.",
        (
            GROUP_MEMBERS,
            GROUP_STATE,
            GROUP_CURRENT_OFFSET,
            GROUP_CURRENT_OFFSET_SUM,
            GROUP_LAG,
            GROUP_LAG_SUM,
        ),
    ),
    Section(
        "Group coordinator",
        "Over all groups. Where Kafka has a meter it is under that name; Kafka counts groups once "
        "a minute, these are exact.",
        (
            NUM_GROUPS,
            *NUM_GROUPS_BY_STATE.values(),
            NUM_OFFSETS,
            COMPLETED_REBALANCES,
            OFFSET_COMMITS,
            OFFSET_EXPIRATIONS,
            OFFSET_DELETIONS,
            REBALANCES_STARTED,
            REBALANCES_AVOIDED,
            REBALANCE_PHASE,
            MEMBERS_REMOVED,
        ),
    ),
    Section(
        "Purgatory",
        "What waits for a condition or a deadline.",
        (PURGATORY_SIZE, NUM_DELAYED_OPERATIONS, PURGATORY_HELD_BYTES),
    ),
    Section(
        "Requests",
        "By api, under Kafka's names of them.",
        (REQUESTS, REQUEST_ERRORS, REQUEST_DURATION, REQUESTS_REJECTED, REQUESTS_WAITING),
    ),
    Section(
        "Connections",
        "Of Kafka clients; those to the port of the metrics are not counted.",
        (
            CONNECTIONS,
            CONNECTIONS_OPENED,
            CONNECTIONS_REFUSED,
            CONNECTIONS_CLOSED,
            RECEIVED_BYTES,
            SENT_BYTES,
            REQUEST_BYTES_HELD,
            RESPONSE_BYTES_HELD,
        ),
    ),
    Section(
        "The process",
        "Beside these, prometheus-client adds `process_*` and `python_*`.",
        (LOOP_LAG, LOOP_LAG_MAX, GC_PAUSE, BUILD_INFO, FOLDED, SCRAPE_SECONDS),
    ),
)

METRICS: Final = {metric.name: metric for section in SECTIONS for metric in section.metrics}
