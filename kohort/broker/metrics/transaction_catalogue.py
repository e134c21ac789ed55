"""The metrics of transactions; part of the catalogue."""

from typing import Final

from kohort.broker.metrics.metric_info import Section, counter, gauge, histogram

_COORDINATOR: Final = "kafka_server_transaction_coordinator_metrics"
_REPLICAS: Final = "kafka_server_replicamanager"

OPEN = gauge(
    "kohort_transactions_open",
    "Transactions that have begun and have not ended in all of their partitions.",
)
OLDEST_SINCE = gauge(
    "kohort_transactions_oldest_since_seconds",
    "Since when the oldest of them is open, in seconds since 1970; absent while none is.",
)
STUCK = gauge(
    "kohort_transactions_stuck",
    "Transactions that are decided and wait for a partition which cannot take its marker.",
)
IDS = gauge("kohort_transactional_ids", "Transactional ids that are known.")
IDS_FORGOTTEN = counter(
    "kohort_transactional_ids_forgotten_total",
    "Transactional ids that were forgotten: expired (`transactional.id.expiration.ms`), or evicted"
    " to make room (`kohort.transactional.ids.max`).",
    "cause",
)
STARTED = counter("kohort_transactions_started_total", "Transactions that have begun.")
ENDED = counter(
    "kohort_transactions_ended_total",
    "Transactions that have ended in all of their partitions, by result (commit, abort). What ended"
    " them: client; timeout; fence, another instance of the producer; start, of a broker that had"
    " stopped after the decision. Newer producers may abort where nothing has begun, which counts.",
    "result",
    "cause",
)
DURATION = histogram(
    "kohort_transaction_seconds",
    "From the beginning of transactions to their end, by the wall clock.",
    "result",
)
SUPERSEDED = counter(
    "kohort_transaction_markers_superseded_total",
    "Markers that a partition refused because it had a later one.",
)
RECONCILED = counter(
    "kohort_transactions_reconciled_total",
    "Transactions that a start after a crash found open in a partition and ended there, or gave"
    " back to their id, because the coordinator's log said otherwise.",
)
APPEND_FAILURES = counter(
    "kohort_transaction_append_failures_total",
    "Records of transactional ids that could not be written.",
)
STABLE_LAG = gauge(
    "kohort_partition_last_stable_offset_lag",
    "Offsets from the last stable offset to the high watermark, which read_committed consumers wait"
    " for. Only for partitions where there are some, of those that were used since the start.",
    "topic",
    "partition",
)
LATE_PARTITIONS = gauge(
    f"{_REPLICAS}_partitionswithlatetransactionscount",
    "Partitions whose first open transaction has had no batch for `transaction.max.timeout.ms` and"
    " five minutes, so that its coordinator should have ended it.",
)
PRODUCER_IDS = gauge(
    f"{_REPLICAS}_produceridcount",
    "Producers that are remembered, summed over the partitions that were used since the start.",
)
PARTITION_LOAD_MAX = gauge(
    f"{_COORDINATOR}_partition_load_time_max",
    "How long the start took to read one partition of __transaction_state, in milliseconds: the"
    " longest.",
)
PARTITION_LOAD_AVG = gauge(
    f"{_COORDINATOR}_partition_load_time_avg",
    "The same, as the mean over all partitions that have records.",
)

SECTIONS: Final = (
    Section(
        "Transactions",
        "Whose transaction holds consumers back is told by `/transactions` and"
        " `kohort transactions why`; see exactly-once.md. There is no queue of markers and no"
        " verification between brokers, so Kafka's meters of these have no counterpart.",
        (
            OPEN,
            OLDEST_SINCE,
            STUCK,
            STARTED,
            ENDED,
            DURATION,
            STABLE_LAG,
            LATE_PARTITIONS,
            PRODUCER_IDS,
            IDS,
            IDS_FORGOTTEN,
            SUPERSEDED,
            RECONCILED,
            APPEND_FAILURES,
            PARTITION_LOAD_MAX,
            PARTITION_LOAD_AVG,
        ),
    ),
)
