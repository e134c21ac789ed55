"""The metrics of transactions; part of the catalogue."""

from typing import Final

from kohort.broker.metrics.metric_info import Section

_COORDINATOR: Final = "kafka_server_transaction_coordinator_metrics"
_REPLICAS: Final = "kafka_server_replicamanager"

SECTION: Final = Section(
    "Transactions",
    "`/transactions` and `kohort transactions why` show which transaction blocks consumers; see "
    "[exactly-once.md](exactly-once.md). A single broker has neither a queue of markers nor "
    "verification between brokers, so Kafka's metrics about them do not exist.",
)
OPEN = SECTION.gauge(
    "kohort_transactions_open",
    "Transactions that have begun and have not ended in all of their partitions.",
)
OLDEST_SINCE = SECTION.gauge(
    "kohort_transactions_oldest_since_seconds",
    "Start time of the oldest open transaction, in seconds since 1970; absent if none is open.",
)
STUCK = SECTION.gauge(
    "kohort_transactions_stuck",
    "Decided transactions with a partition to which the marker cannot be written.",
)
STARTED = SECTION.counter("kohort_transactions_started_total", "Transactions that have begun.")
ENDED = SECTION.counter(
    "kohort_transactions_ended_total",
    "Transactions that have ended in all of their partitions, by result (commit, "
    "abort) and cause: client; timeout; fence (another instance of the producer); "
    "start (of a broker that had stopped after the decision). Newer producers may "
    "abort before a transaction has begun; such aborts count, too.",
    "result",
    "cause",
)
DURATION = SECTION.histogram(
    "kohort_transaction_seconds",
    "Duration of transactions from beginning to end, by the wall clock.",
    "result",
)
STABLE_LAG = SECTION.gauge(
    "kohort_partition_last_stable_offset_lag",
    "Offsets from the last stable offset to the high watermark, which "
    "read_committed consumers cannot read yet. Only for partitions used since the "
    "start where it is not 0.",
    "topic",
    "partition",
)
LATE_PARTITIONS = SECTION.gauge(
    f"{_REPLICAS}_partitionswithlatetransactionscount",
    "Partitions whose first open transaction has had no batch for `transaction.max.timeout.ms` and"
    " five minutes, so that its coordinator should have ended it.",
)
PRODUCER_IDS = SECTION.gauge(
    f"{_REPLICAS}_produceridcount",
    "Producer ids with state, summed over the partitions used since the start.",
)
IDS = SECTION.gauge("kohort_transactional_ids", "Known transactional ids.")
IDS_FORGOTTEN = SECTION.counter(
    "kohort_transactional_ids_forgotten_total",
    "Transactional ids that were dropped: expired "
    "(`transactional.id.expiration.ms`), or evicted to make room "
    "(`kohort.transactional.ids.max`).",
    "cause",
)
SUPERSEDED = SECTION.counter(
    "kohort_transaction_markers_superseded_total",
    "Markers that a partition rejected because it had a later one.",
)
RECONCILED = SECTION.counter(
    "kohort_transactions_reconciled_total",
    "Transactions that were open in a partition at a start after a crash, but not "
    "in the coordinator's log; they were ended in the partition or restored to "
    "their transactional id.",
)
APPEND_FAILURES = SECTION.counter(
    "kohort_transaction_append_failures_total",
    "Records of transactional ids that could not be written.",
)
PARTITION_LOAD_MAX = SECTION.gauge(
    f"{_COORDINATOR}_partition_load_time_max",
    "Longest time to load one partition of __transaction_state at the start, in milliseconds.",
)
PARTITION_LOAD_AVG = SECTION.gauge(
    f"{_COORDINATOR}_partition_load_time_avg",
    "Mean time to load a partition of __transaction_state at the start, over those with records.",
)
